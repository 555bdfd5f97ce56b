/**
 * The actions of operators, a row each. A row is written before its action and gets its outcome after it; rows are read
 * by time and deleted by retention.
 */
import { type NamesOf, namesOf, type Part } from '../schema/part.ts'

const objects = ['audit'] as const
export const auditNames: NamesOf<(typeof objects)[number]> = namesOf(objects)

export const auditPart: Part = {
  name: 'audit',
  tables: [
    `create table ~audit (
  started_at timestamptz not null,
  ended_at timestamptz,
  id uuid primary key,
  actor text collate "C" not null,
  action text collate "C" not null,
  target text collate "C",
  outcome text not null default 'running',
  parameters jsonb not null default '{}',
  result jsonb,
  error jsonb
)`,
    `create index audit_started_at on ~audit (started_at, id)`,
  ],
  functions: [],
}
