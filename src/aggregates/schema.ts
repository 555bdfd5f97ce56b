/**
 * Snapshots: the state that a stream folds to at one of its versions. At most one per version of the state's shape, so
 * that two releases of a program can run side by side. The body is `json`, not `jsonb`: it comes back exactly as it was
 * written, with the keys of its objects in their order.
 */
import { type NamesOf, namesOf, type Part } from '../schema/part.ts'

const objects = ['snapshots'] as const
export const aggregateNames: NamesOf<(typeof objects)[number]> = namesOf(objects)

export const aggregatesPart: Part = {
  name: 'aggregates',
  tables: [
    `create table ~snapshots (
  version bigint not null,
  created_at timestamptz not null default now(),
  event_id uuid not null,
  state_version integer not null,
  stream text collate "C" not null,
  body json not null,
  primary key (stream, state_version)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
  ],
  functions: [],
}
