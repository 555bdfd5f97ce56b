/** The errors of sessions: used where they cannot be. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const SessionSaving: ErrorKind<'session_saving', { call: string }> = defineError(
  'session_saving',
  d => `${d.call} was called while the session is being saved. Await save() first; a session is used by one at a time.`,
)
export const SessionClosed: ErrorKind<'session_closed', { call: string }> = defineError(
  'session_closed',
  d => `${d.call} was called on a session that is over. Open a new one with store.session().`,
)
