/**
 * The meaning of errors of the driver. Errors are classified by their SQLSTATE and by Node's socket codes: servers
 * translate messages, and some servers leave out the fields for table and constraint. A pooler has one SQLSTATE (08P01)
 * for all its own errors and does not translate them, so only these are classified by their text.
 */
import { isRillflowError, type RillflowError } from '../core/errors.ts'
import {
  AuthenticationFailed,
  ConnectionLost,
  DatabaseFailed,
  DatabaseMissing,
  DatabaseReadOnly,
  DatabaseUnreachable,
  InvalidText,
  PermissionDenied,
  PoolerUnsupported,
  PreparedStatementLost,
  ResultTooLarge,
  SerializationFailed,
  ServerFull,
  ServerInRecovery,
  StatementCancelled,
  StatementTooComplex,
  TlsFailed,
} from './errors.ts'

/**
 * The five-character SQLSTATE of a driver's error, if it has one. Citus reports some failures of a node as an internal
 * error (XX000), whose text is the node's own.
 */
export function sqlStateOf(error: unknown): string | undefined {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown }
  if (code === internalError && typeof message === 'string') return stateOfNode(message) ?? code
  // Every SQLSTATE has a digit. EPIPE, the code of a socket, has none.
  return typeof code === 'string' && /^(?=.*\d)[0-9A-Z]{5}$/.test(code) ? code : undefined
}

/** A row that a node refused, or a commit that one node may have, and the coordinator does not know of. */
function stateOfNode(message: string): string | undefined {
  if (message.includes('duplicate key value violates unique constraint')) return uniqueViolation
  if (/could not commit transaction .*on at least one active node|failure on connection/.test(message)) return '08007'
  return undefined
}

const internalError = 'XX000'

/** Turns an error of one of our own statements into one of `errors.ts`. */
export function toRillflowError(error: unknown, statement: string): RillflowError {
  if (isRillflowError(error)) return error
  const sqlState = sqlStateOf(error)
  const reason = error instanceof Error ? error.message : String(error)
  if (tooLargeCodes.has(codeOf(error))) return new ResultTooLarge({ statement, maxBytes: maxRowBytes }, error)
  if (isStatementMode(error)) return new PoolerUnsupported({ reason }, error)
  if (isConnectionLost(error)) return new ConnectionLost({ reason }, error)
  if (sqlState === undefined) return new DatabaseFailed({ sqlState: 'none', reason, statement }, error)
  if (isCollision(sqlState)) return new SerializationFailed({ reason }, error)
  if (sqlState === queryCancelled) return new StatementCancelled({ statement, reason }, error)
  if (sqlState === statementTooComplex) return new StatementTooComplex({ statement, reason }, error)
  if (sqlState === notPrimary) return new ServerInRecovery({}, error)
  if (sqlState === readOnlyTransaction) return new DatabaseReadOnly({ statement, reason }, error)
  if (sqlState === insufficientPrivilege) return new PermissionDenied({ statement, reason }, error)
  if (isPreparedStatementLost(sqlState)) return new PreparedStatementLost({ statement, reason }, error)
  // A NUL that stands in JSON as an escape is seen by the server only.
  if (sqlState === '22P05' || sqlState === '22021')
    return new InvalidText({ statement, parameter: 0, reason: 'contains a character' }, error)
  return new DatabaseFailed({ sqlState, reason, statement }, error)
}

/** The server, as an error of the first contact names it. */
export interface Target {
  readonly address: string
  readonly user: string
  readonly database: string
}

/** Turns an error of the first contact into one that says which part of the url is wrong. */
export function toConnectError(error: unknown, to: Target): RillflowError {
  if (isRillflowError(error)) return error
  const sqlState = sqlStateOf(error)
  const reason = reasonOf(error)
  if (isServerFull(error)) return new ServerFull({ address: to.address, reason }, error)
  if (isStatementMode(error)) return new PoolerUnsupported({ reason }, error)
  const advice = tlsAdvice(error)
  if (advice !== undefined) return new TlsFailed({ address: to.address, reason, advice }, error)
  if (sqlState?.startsWith('28')) return new AuthenticationFailed({ user: to.user, reason }, error)
  if (sqlState === '3D000' || isOfPooler(error, /no such database|bouncer config error|database ".*" does not exist/))
    return new DatabaseMissing({ database: to.database }, error)
  if (isOfPooler(error, /authentication failed|no such user|not allowed/))
    return new AuthenticationFailed({ user: to.user, reason }, error)
  if (sqlState === insufficientPrivilege || sqlState === readOnlyTransaction) return toRillflowError(error, 'connect')
  return new DatabaseUnreachable({ address: to.address, reason }, error)
}

/** The server, or a pooler in front of it, accepts no more connections. */
export function isServerFull(error: unknown): boolean {
  return sqlStateOf(error) === '53300' || isOfPooler(error, /no more connections|too many/)
}

function isStatementMode(error: unknown): boolean {
  return isOfPooler(error, /statement pooling mode/)
}

function isOfPooler(error: unknown, text: RegExp): boolean {
  return sqlStateOf(error) === '08P01' && text.test((error as Error).message)
}

const tlsCodes =
  /^(DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|CERT_|ERR_TLS_|ERR_SSL_|HOSTNAME_MISMATCH|INVALID_CA|CRL_|EPROTO$)/

/** How to make TLS work, if it has failed or is missing. */
function tlsAdvice(error: unknown): string | undefined {
  const { code, message = '' } = (error ?? {}) as { code?: unknown; message?: string }
  if (typeof code === 'string' && tlsCodes.test(code))
    return `This program does not trust its certificate. Give the certificate of its authority: ssl: { ca }. Only in a network that you trust: ssl: { rejectUnauthorized: false }.`
  // An error of the driver itself, which is never translated.
  if (code === undefined && /does not support SSL/.test(message))
    return 'It offers no TLS. Turn it on there, or, in a network that you trust, connect without it: ssl: false.'
  const demandsTls = sqlStateOf(error) === '28000' && /no encryption|SSL off/.test(message)
  if (demandsTls || isOfPooler(error, /SSL required/))
    return 'It accepts only connections with TLS: give the option ssl: true.'
  return undefined
}

/** The outcome of a statement that was running on the connection is not known. */
export function isConnectionLost(error: unknown): boolean {
  const sqlState = sqlStateOf(error)
  // 57P01…57P03: shut down, crashed, starting up. 57P05: idle too long. 25P03, 25P04: cut off inside a transaction.
  if (sqlState !== undefined) return /^(08...|57P0[1-35]|25P0[34]|53300)$/.test(sqlState)
  const code = (error as { code?: unknown } | null)?.code
  if (typeof code === 'string' && /^(E[A-Z]+)$/.test(code)) return true
  return error instanceof Error && /connect|socket|not queryable|client was closed|read timeout/i.test(error.message)
}

/** Rolled back because of another transaction: the same transaction can be run again. */
export function isCollision(sqlState: string | undefined): boolean {
  return sqlState === '40001' || sqlState === '40P01'
}

/** The connection lacks a statement that was prepared on it, or has one that was not. */
function isPreparedStatementLost(sqlState: string): boolean {
  return sqlState === '26000' || sqlState === '42P05'
}

const readOnlyTransaction = '25006'
const insufficientPrivilege = '42501'

/** A statement that needs a transaction was sent outside of one. */
export const noActiveTransaction = '25P01'

/** A lock was not free within lock_timeout. */
export const lockNotAvailable = '55P03'

/** Ended by a limit of time, or at the request of another session. */
export const queryCancelled = '57014'

/** The server's stack, or the embedded engine's, was full. */
export const statementTooComplex = '54001'

export const uniqueViolation = '23505'

/** The row that a constraint refused. Fields that are missing are read from the message: a node's error is passed on without them. */
export function refusedRow(error: unknown): { constraint: string; column: string; detail: string } {
  const { constraint, column, detail = '', message = '' } = (error ?? {}) as Partial<Record<string, string>>
  return {
    constraint: constraint ?? /constraint "(.*?)"/s.exec(message)?.[1] ?? '',
    column: column ?? /column "(.*?)"/s.exec(message)?.[1] ?? '',
    detail,
  }
}

/** A name as a node has it, with the number of its part of the table, as the cluster has it: `orders_email_102008`. */
export function withoutShard(name: string): string {
  return name.replace(/_\d{6,}$/, '')
}

/** Raised by our own functions on a server in recovery, where PostgreSQL itself raises 55000. */
export const notPrimary = 'RF001'

/** A document has at most 16 MiB unless that was raised, and an event 1 MiB. A string can have 512 MiB. */
export const maxRowBytes: number = 128 * 1024 * 1024

/** The error of a reply with a row that is larger. */
export function rowTooLarge(): Error {
  return Object.assign(new Error(`a row has more than ${maxRowBytes} bytes`), { code: rowTooLargeCode })
}

const rowTooLargeCode = 'ROW_TOO_LARGE'
const tooLargeCodes: ReadonlySet<unknown> = new Set([rowTooLargeCode, 'ERR_STRING_TOO_LONG', 'ERR_BUFFER_TOO_LARGE'])

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code
}

function reasonOf(error: unknown): string {
  // A host name with several addresses fails with one error each.
  const inner = error instanceof AggregateError ? error.errors[0] : error
  return inner instanceof Error ? inner.message : String(inner)
}
