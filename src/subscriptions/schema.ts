/**
 * The events of a subscription above its checkpoint: those that were acknowledged out of order, and those that were
 * given back, with the time they are due again. Never more rows per consumer than it may have in flight.
 */
import { type NamesOf, namesOf, type Part } from '../schema/part.ts'

const objects = ['deliveries'] as const
export const subscriptionNames: NamesOf<(typeof objects)[number]> = namesOf(objects)

export const subscriptionsPart: Part = {
  name: 'subscriptions',
  tables: [
    `create table ~deliveries (
  position bigint not null,
  acked_at timestamptz,
  retry_at timestamptz,
  first_failed_at timestamptz,
  deliveries integer not null,
  consumer text collate "C" not null,
  last_error jsonb,
  primary key (consumer, position)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
  ],
  functions: [],
}
