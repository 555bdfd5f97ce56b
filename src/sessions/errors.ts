/** The errors of sessions: calls during a save, and calls on a session that has ended. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const SessionSaving: ErrorKind<'session_saving', { call: string }> = defineError(
  'session_saving',
  d =>
    `${d.call} was called while the session is being saved. Await save() first. A session serves one caller at a time.`,
)
export const SessionClosed: ErrorKind<'session_closed', { call: string }> = defineError(
  'session_closed',
  d => `${d.call} was called on a session that has ended. Open a new one with store.session().`,
)
