/** What a statement fails with that comes too late: the store has left the name it writes to. */
import { isRillflowError } from '../../core/errors.ts'
import { sqlStateOf } from '../../database/sqlstate.ts'

/** 42P01 table, 42883 function, 3F000 schema, 42704 type: none of that name. */
const missing = ['42P01', '42883', '3F000', '42704']

/**
 * Whether the call found nothing to work on, so that it took no effect. A table that was never made gives the same error:
 * whether the store has moved, and where to, only the directory knows.
 */
export function isGone(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (isRillflowError(cause, 'schema_newer')) return true
    if (missing.includes(sqlStateOf(cause) ?? '')) return true
  }
  return false
}
