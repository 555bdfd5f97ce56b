/**
 * From the words of the line to a command and its values.
 *
 *     find   words ─► path of nouns and verbs ─► command, and the words that are left       hidden names lead on from here
 *     parse  words that are left ─► arguments and options, each of its kind                 globals may stand anywhere
 *     nearest name for whatever is not known
 *
 * Whatever is wrong is said before anything is opened, as `WrongUsage`, with the line to try instead.
 */
import type { Place } from '../command.ts'

/** Taken by every command. */
export const globalOptions = {
  url: {
    kind: 'text',
    value: 'URL',
    summary: 'The server: postgres://user:password@host/database; or RILLFLOW_URL, or DATABASE_URL',
    aliases: ['database-url'],
  },
  folder: {
    kind: 'text',
    value: 'PATH',
    summary: 'The folder of an embedded store, if it is not ./.rillflow; or RILLFLOW_FOLDER',
  },
  schema: { kind: 'text', value: 'NAME', env: 'RILLFLOW_SCHEMA', summary: 'The schema that holds the store' },
  tenant: {
    kind: 'text',
    value: 'NAME',
    names: 'tenant',
    summary: 'The tenant, of a store that has tenants; or RILLFLOW_TENANT',
  },
  tenancy: {
    kind: 'text',
    value: 'KIND',
    choices: ['schema'],
    env: 'RILLFLOW_TENANCY',
    summary: 'That the store has tenants, where the configuration does not say so',
  },
  config: {
    kind: 'text',
    value: 'PATH',
    env: 'RILLFLOW_CONFIG',
    summary: 'The configuration, if it is not ./rillflow.config.ts, .js or .mjs',
  },
  json: { kind: 'flag', summary: 'JSON for programs instead of text for people' },
  color: {
    kind: 'flag',
    summary: 'Colours also where there is no terminal; --no-color for none at all',
    aliases: ['colour'],
  },
  debug: { kind: 'flag', summary: 'Where an error came from, too' },
  help: { kind: 'flag', short: 'h', summary: 'What a command takes, with an example' },
} as const

/** Added to commands that destroy something. */
export const destructiveOptions = {
  yes: { kind: 'flag', summary: 'Do it without asking', aliases: ['force'] },
  dryRun: { kind: 'flag', summary: 'Only tell what would be done' },
} as const

export interface Globals extends Omit<Place, 'usualTenant'> {
  readonly json: boolean
  readonly color: boolean | undefined
  readonly debug: boolean
  readonly help: boolean
}

/** `maxInFlight` is `--max-in-flight` on the line. */
export function flagOf(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`
}
