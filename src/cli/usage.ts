/** The errors of the command line itself; all others come from the store. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const WrongUsage: ErrorKind<'wrong_usage', { reason: string; hint?: string | undefined }> = defineError(
  'wrong_usage',
  d => `${d.reason}.`,
)
export const ConfigFailed: ErrorKind<'config_failed', { path: string; reason: string; hint?: string | undefined }> =
  defineError('config_failed', d => `${d.path} could not be used: ${d.reason}.`)
export const NothingFound: ErrorKind<'nothing_found', { what: string; given: string; hint?: string | undefined }> =
  defineError('nothing_found', d => `There is no ${d.what} ${JSON.stringify(d.given)}.`)
export const NotConfirmed: ErrorKind<'not_confirmed', object> = defineError(
  'not_confirmed',
  () => 'Nothing was done: the question was not answered with yes.',
)
export const NothingRegistered: ErrorKind<'nothing_registered', { what: string; path: string | undefined }> =
  defineError('nothing_registered', d =>
    d.path === undefined
      ? `There is nothing to run: no rillflow.config.ts was found, so this program has no ${d.what}.`
      : `There is nothing to run: ${d.path} has no ${d.what}.`,
  )

/** These say all there is to say; the store's have a section each in the reference of errors. */
export function isOfCommandLine(error: unknown): boolean {
  const kinds = [WrongUsage, ConfigFailed, NothingFound, NotConfirmed, NothingRegistered]
  return kinds.some(kind => error instanceof kind)
}
