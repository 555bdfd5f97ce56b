/**
 * Errors as they are stored: in a dead letter, and as a consumer's last one. Users' code can throw anything, of any
 * size, so an error is turned into a bounded form that the database can store.
 */
import { isRillflowError } from '../../core/errors.ts'
import { isConnectionLost, sqlStateOf } from '../../database/sqlstate.ts'

export interface ErrorDescription {
  readonly name: string
  readonly message: string
  /** The stable code, or the SQLSTATE, if it has one. */
  readonly code?: string | undefined
  readonly stack?: string | undefined
  /** Its causes, in one line each, the nearest first. */
  readonly causes?: readonly string[] | undefined
}

const maxNameLength = 200
const maxMessageLength = 2_000
const maxStackLength = 4_000
const maxCauses = 5

export function describeError(error: unknown): ErrorDescription {
  const code = fieldOf(error, 'code')
  const stack = fieldOf(error, 'stack')
  const causes = causesOf(error)
  return {
    name: nameOf(error),
    message: messageOf(error),
    ...(code === undefined ? {} : { code: cut(code, maxNameLength) }),
    ...(stack === undefined ? {} : { stack: cut(stack, maxStackLength) }),
    ...(causes.length === 0 ? {} : { causes }),
  }
}

/**
 * True for an error that is not about the event: the lease is lost, the database is away, or its tenant has just been
 * moved. An error of a socket without an SQLSTATE may be that of a handler's own target, and counts as a failure of the
 * handler.
 */
export function isInterruption(error: unknown): boolean {
  if (isRillflowError(error)) return interruptions.has(error.code)
  return sqlStateOf(error) !== undefined && isConnectionLost(error)
}

const interruptions: ReadonlySet<string> = new Set([
  'checkpoint_moved',
  'connection_lost',
  'database_read_only',
  'database_unreachable',
  'directory_unreachable',
  'lease_lost',
  'outcome_unknown',
  'server_full',
  'server_in_recovery',
  'store_closed',
  'tenant_moving',
])

function causesOf(error: unknown): string[] {
  const causes: string[] = []
  // A chain that leads back to itself ends with the limit.
  for (let cause = propertyOf(error, 'cause'); cause !== undefined && causes.length < maxCauses; ) {
    causes.push(`${nameOf(cause)}: ${messageOf(cause)}`)
    cause = propertyOf(cause, 'cause')
  }
  return causes
}

function nameOf(error: unknown): string {
  return cut(fieldOf(error, 'name') ?? (error === null ? 'null' : typeof error), maxNameLength)
}

function messageOf(error: unknown): string {
  return cut(fieldOf(error, 'message') ?? textOf(error), maxMessageLength)
}

function textOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value)
  try {
    return JSON.stringify(value) ?? 'an object'
  } catch {
    return 'an object'
  }
}

function fieldOf(error: unknown, field: string): string | undefined {
  const value = propertyOf(error, field)
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** A thrown object may itself throw when its properties are read. */
export function propertyOf(value: unknown, property: string): unknown {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return undefined
  try {
    return (value as Record<string, unknown>)[property]
  } catch {
    return undefined
  }
}

/** At most so many characters, none of which the database would refuse. */
function cut(text: string, most: number): string {
  const short = text.length > most ? `${text.slice(0, most - 1)}…` : text
  return short.replaceAll(/[\0\p{Surrogate}]/gu, '\ufffd')
}
