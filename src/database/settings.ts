/**
 * The settings of a server that change the text of values or names. The store reads and writes text, so it needs each as it
 * is by default. They are checked at the first contact, and by the doctor on a server that runs.
 */
import { type Statement, sql } from './sql.ts'

/** The settings of the server that the store must know. The doctor asks the same of a server that runs. */
export interface ServerFacts {
  readonly version: string
  readonly number: number
  readonly isolation: string
  readonly standby: boolean
  /** As the server names itself. */
  readonly product: string
  /** The version of Citus; null without it. */
  readonly citus: string | null
  readonly settings: Readonly<Record<string, string>>
}

/** The settings that change the text of values or names, or lose characters, with the value that the store needs. */
export const neededSettings: Readonly<Record<string, string>> = {
  server_encoding: 'UTF8',
  client_encoding: 'UTF8',
  datestyle: 'ISO',
  array_nulls: 'on',
  quote_all_identifiers: 'off',
  bytea_output: 'hex',
  standard_conforming_strings: 'on',
}

export function factsStatement(): Statement {
  return sql`/* database.facts */
    select
      current_setting('server_version') as version,
      current_setting('server_version_num')::integer as number,
      current_setting('default_transaction_isolation') as isolation,
      pg_is_in_recovery() as standby,
      version() as product,
      (select extversion from pg_extension where extname = 'citus') as citus,
      (select json_object_agg(name, current_setting(name))
        from unnest(${Object.keys(neededSettings)}::text[]) as needed(name)) as settings`
}

/**
 * Why a server that speaks the language of PostgreSQL cannot have a store; undefined if it can. Positions are announced by
 * advisory locks. On a server that takes them without locking, or where it is not proven that a commit is visible before
 * its locks are free, readers would skip events, and no error would say so.
 */
export function whyIncompatible({ product, citus }: Pick<ServerFacts, 'product' | 'citus'>): string | undefined {
  if (/CockroachDB/i.test(product)) return 'its advisory locks do not lock, so readers would skip events'
  if (/-YB-|YugabyteDB/i.test(product))
    return 'it is not proven that a commit is visible there before its advisory locks are free, so readers might skip events'
  if (/Redshift|Materialize|RisingWave|QuestDB/i.test(product)) return 'it is not PostgreSQL'
  const [major = 0, minor = 0] = (citus ?? '').split(/[.-]/).map(Number)
  if (citus !== null && (major < 13 || (major === 13 && minor < 2)))
    return `it has Citus ${citus}, and 13.2 or newer is needed`
  return undefined
}

/** The settings that differ from what the store needs. */
export function wrongSettings({ settings }: Pick<ServerFacts, 'settings'>): SettingUnsupportedData[] {
  return Object.entries(neededSettings).flatMap(([setting, expected]) => {
    const value = settings[setting] ?? ''
    // The style of dates is followed by the order of day and month, which only matters for dates that are sent.
    const found = setting === 'datestyle' ? value.split(',')[0] : value
    return found === expected ? [] : [{ setting, value, expected, advice: adviceFor(setting, expected) }]
  })
}

type SettingUnsupportedData = { setting: string; value: string; expected: string; advice: string }

function adviceFor(setting: string, expected: string): string {
  if (setting === 'server_encoding')
    return "Make another database: create database … encoding 'UTF8' template template0."
  return `Set it for the role of this program: alter role … in database … set ${setting} = '${expected}'. Or for its pool: options: '-c ${setting}=${expected}'.`
}
