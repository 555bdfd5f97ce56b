/**
 * Three roles for one schema, as SQL for an administrator of the server:
 *
 *     owner    owns the schema: syncs it, makes and rebuilds tables, imports, moves         deployments
 *     writer   reads and writes rows, calls functions; changes no structure                 programs, operators
 *     reader   reads rows                                                                   reports, checks, the console
 *
 * The owner's later tables are covered by default privileges, so a new collection needs no new grant. Functions run with the
 * rights of their caller. Running the statements again changes nothing.
 */
import { identifier, literal } from '../database/sql.ts'

export interface RoleNames {
  /** Default `<schema>_owner`. */
  readonly owner?: string | undefined
  /** Default `<schema>_writer`. */
  readonly writer?: string | undefined
  /** Default `<schema>_reader`. */
  readonly reader?: string | undefined
}

/** One statement each, in order. */
export function roleStatements(schema: string, names: RoleNames = {}): string[] {
  const { owner = `${schema}_owner`, writer = `${schema}_writer`, reader = `${schema}_reader` } = names
  const inSchema = identifier(schema).quoted
  const [toOwner, toWriter, toReader] = [owner, writer, reader].map(name => identifier(name).quoted)
  const later = `alter default privileges for role ${toOwner} in schema ${inSchema}`
  return [
    ...[owner, writer, reader].map(createRole),
    `create schema if not exists ${inSchema} authorization ${toOwner}`,
    `alter schema ${inSchema} owner to ${toOwner}`,
    takeOver(schema, owner),
    `revoke all on schema ${inSchema} from public`,
    `grant usage on schema ${inSchema} to ${toWriter}, ${toReader}`,
    `grant select, insert, update, delete on all tables in schema ${inSchema} to ${toWriter}`,
    `grant select, usage, update on all sequences in schema ${inSchema} to ${toWriter}`,
    `grant select on all tables in schema ${inSchema} to ${toReader}`,
    `grant select on all sequences in schema ${inSchema} to ${toReader}`,
    `grant execute on all functions in schema ${inSchema} to ${toWriter}, ${toReader}`,
    `${later} grant select, insert, update, delete on tables to ${toWriter}`,
    `${later} grant select, usage, update on sequences to ${toWriter}`,
    `${later} grant select on tables to ${toReader}`,
    `${later} grant select on sequences to ${toReader}`,
    `${later} grant execute on functions to ${toWriter}, ${toReader}`,
  ]
}

/** Without a password and without the right to log in: an administrator grants the role to those of programs. */
function createRole(name: string): string {
  return `do $roles$
begin
  if not exists (select from pg_roles where rolname = ${literal(name)}) then
    create role ${identifier(name)} nologin;
  end if;
end $roles$`
}

/** Objects that another role has made before become the owner's. */
function takeOver(schema: string, owner: string): string {
  return `do $roles$
declare
  found record;
begin
  for found in
    select format('alter %s %I.%I owner to %I',
      case c.relkind when 'S' then 'sequence' else 'table' end, n.nspname, c.relname, ${literal(owner)}) as change
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${literal(schema)}
      and c.relkind in ('r', 'p', 'S')
    union all
    select format('alter function %s owner to %I', p.oid::regprocedure, ${literal(owner)})
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
    where n.nspname = ${literal(schema)}
  loop
    execute found.change;
  end loop;
end $roles$`
}
