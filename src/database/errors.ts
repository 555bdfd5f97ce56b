/** The errors of the database: reaching it, its transactions, and the folder of an embedded one. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const DatabaseUnreachable: ErrorKind<'database_unreachable', { address: string; reason: string }> = defineError(
  'database_unreachable',
  d => `No PostgreSQL server answers at ${d.address} (${d.reason}). Start it, or check the host and port in the url.`,
  { retryable: true },
)

export const AuthenticationFailed: ErrorKind<'authentication_failed', { user: string; reason: string }> = defineError(
  'authentication_failed',
  d => `The server refused user "${d.user}" (${d.reason}). Check the user and password in the url.`,
)

export const DatabaseMissing: ErrorKind<'database_missing', { database: string }> = defineError(
  'database_missing',
  d => `The server has no database "${d.database}". Create it (createdb "${d.database}"), or correct the url.`,
)

export const ServerUnsupported: ErrorKind<'server_unsupported', { version: string; oldest: number }> = defineError(
  'server_unsupported',
  d =>
    `The server runs PostgreSQL ${d.version}, and ${d.oldest} or newer is needed. Upgrade the server, or use another one.`,
)

export const ServerIncompatible: ErrorKind<'server_incompatible', { product: string; reason: string }> = defineError(
  'server_incompatible',
  d =>
    `The server (${d.product}) cannot have a store: ${d.reason}. Use PostgreSQL 15 or newer, or Citus 13.2 or newer on it.`,
)

export const ServerFull: ErrorKind<'server_full', { address: string; reason: string }> = defineError(
  'server_full',
  d =>
    `The server at ${d.address} accepts no more connections (${d.reason}). Lower maxConnections in the programs that use it, put a connection pooler in front of it, or raise its limit.`,
  { retryable: true },
)

export const TlsFailed: ErrorKind<'tls_failed', { address: string; reason: string; advice: string }> = defineError(
  'tls_failed',
  d => `The server at ${d.address} cannot be reached by TLS as it was asked for (${d.reason}). ${d.advice}`,
)

export const SettingUnsupported: ErrorKind<
  'setting_unsupported',
  { setting: string; value: string; expected: string; advice: string }
> = defineError(
  'setting_unsupported',
  d =>
    `The setting ${d.setting} of the database is ${JSON.stringify(d.value)}, and the store can only read and write its data with ${JSON.stringify(d.expected)}. ${d.advice}`,
)

export const PoolerUnsupported: ErrorKind<'pooler_unsupported', { reason: string }> = defineError(
  'pooler_unsupported',
  d =>
    `The connection pooler allows no transactions (${d.reason}), and the store needs them. Set the pool mode of this database to transaction (with the option prepare: false) or to session.`,
)

export const PreparedStatementLost: ErrorKind<'prepared_statement_lost', { statement: string; reason: string }> =
  defineError(
    'prepared_statement_lost',
    d =>
      `The connection does not have the prepared statements that the store has made on it (${d.statement}: ${d.reason}). A connection pooler in transaction mode mixes them up: open the store with prepare: false. On a pool of your own, do not send DEALLOCATE or DISCARD.`,
  )

export const DatabaseReadOnly: ErrorKind<'database_read_only', { statement: string; reason: string }> = defineError(
  'database_read_only',
  d =>
    `The database refused the write ${d.statement} (${d.reason}). It is a standby, or its transactions are read-only by default. Connect to the primary, or set default_transaction_read_only to off for this role and database.`,
  { retryable: true },
)

export const PermissionDenied: ErrorKind<'permission_denied', { statement: string; reason: string }> = defineError(
  'permission_denied',
  d =>
    `The role of this connection may not run ${d.statement} (${d.reason}). Grant it the rights on the schema of the store and its objects, or connect as the role that owns the schema. For the first sync it needs the right CREATE on the database.`,
)

export const ServerInRecovery: ErrorKind<'server_in_recovery', object> = defineError(
  'server_in_recovery',
  () =>
    'The server is a standby in recovery, where the store cannot know which events are settled. Connect to the primary.',
  { retryable: true },
)

export const ConnectionLost: ErrorKind<'connection_lost', { reason: string }> = defineError(
  'connection_lost',
  d =>
    `The connection to the database was lost (${d.reason}). The store reconnects on the next call. Try this one again.`,
  { retryable: true },
)

export const SerializationFailed: ErrorKind<'serialization_failed', { reason: string }> = defineError(
  'serialization_failed',
  d => `The transaction collided with another one (${d.reason}) and was rolled back. Run it again from its beginning.`,
  { retryable: true },
)

export const DatabaseFailed: ErrorKind<'database_failed', { sqlState: string; reason: string; statement: string }> =
  defineError(
    'database_failed',
    d => `The database refused ${d.statement}: ${d.reason} (SQLSTATE ${d.sqlState}). error.cause has the details.`,
  )

export const InvalidText: ErrorKind<'invalid_text', { statement: string; parameter: number; reason: string }> =
  defineError(
    'invalid_text',
    d =>
      `A text for ${d.statement} ${d.reason}, which PostgreSQL cannot store. Nothing was sent. Remove it, or encode the text, for example as base64.`,
  )

export const StatementCancelled: ErrorKind<'statement_cancelled', { statement: string; reason: string }> = defineError(
  'statement_cancelled',
  d =>
    `The server ended ${d.statement} before its result (${d.reason}). Nothing of it took effect. Make it cheaper (an index, fewer rows), or raise its limit: answerTimeoutMs of the store, timeoutMs of a filter.`,
)

export const StatementTooComplex: ErrorKind<'statement_too_complex', { statement: string; reason: string }> =
  defineError(
    'statement_too_complex',
    d =>
      `The database could not run ${d.statement}, because it is nested too deeply or has too many parts (${d.reason}). Nothing of its transaction took effect. Use fewer words, conditions or fields, or divide it into several calls.`,
  )

export const ResultTooLarge: ErrorKind<'result_too_large', { statement: string; maxBytes: number }> = defineError(
  'result_too_large',
  d =>
    `The answer to ${d.statement} has a row of more than ${d.maxBytes} bytes, so it was not read. Select single fields of the document, or put or delete it by its id, which does not read it.`,
)

export const InsideTransaction: ErrorKind<'inside_transaction', { call: string }> = defineError(
  'inside_transaction',
  d =>
    `${d.call} was called inside an open transaction of this store. There it would run outside of the transaction, or wait for it for ever. Pass the transaction to the call ({ tx }), or make the call after the transaction.`,
)

export const NotInTransaction: ErrorKind<'not_in_transaction', { given: 'pool' | 'connection' }> = defineError(
  'not_in_transaction',
  d =>
    `The option tx was given ${d.given === 'pool' ? 'a pool, which runs each statement on any of its connections' : 'a connection without an open transaction'}: what the store writes would not be one transaction, and could be stored in part. Begin one on a client: const client = await pool.connect(); await client.query('begin'); pass { tx: client }; await client.query('commit'). Or let the store begin it: store.transaction(tx => …).`,
)

export const TransactionClosed: ErrorKind<'transaction_closed', object> = defineError(
  'transaction_closed',
  () =>
    'This transaction has ended, so its handle can no longer be used. Do the work inside the function, and await it there.',
)

export const TransactionTimeout: ErrorKind<'transaction_timeout', { timeoutMs: number }> = defineError(
  'transaction_timeout',
  d =>
    `The transaction was still open after ${d.timeoutMs} ms and was rolled back. Move slow work (network calls) out of it, or raise timeoutMs.`,
)

export const FolderLocked: ErrorKind<'folder_locked', { folder: string; pid: number; host: string; since: string }> =
  defineError(
    'folder_locked',
    d =>
      `Folder ${d.folder} is in use by process ${d.pid} on ${d.host} since ${d.since}, and that process does not serve others: it is on another machine, uses another version of rillflow, or does not answer. Two processes in one folder would lose data. Stop the other process, give this one another folder, or use a server ({ url }).`,
    { retryable: true },
  )

export const FolderNotEmpty: ErrorKind<'folder_not_empty', { folder: string }> = defineError(
  'folder_not_empty',
  d =>
    `Folder ${d.folder} is not empty, and a restore never replaces anything. Give another folder, or move this one away.`,
)

export const FolderNotWritable: ErrorKind<'folder_not_writable', { folder: string; reason: string }> = defineError(
  'folder_not_writable',
  d => `The embedded store cannot write to ${d.folder} (${d.reason}). Fix its permissions, or give another folder.`,
)

export const FolderVersionMismatch: ErrorKind<
  'folder_version_mismatch',
  { folder: string; found: string; expected: string }
> = defineError(
  'folder_version_mismatch',
  d =>
    `Folder ${d.folder} was written by PostgreSQL ${d.found}, and the embedded engine is PostgreSQL ${d.expected}, which cannot read it. Export the store with the version of rillflow that wrote it, then import it into a new folder.`,
)

export const EngineFileMissing: ErrorKind<'engine_file_missing', { file: string }> = defineError(
  'engine_file_missing',
  d =>
    `The embedded engine lacks its file ${d.file}. A bundler takes only the code along: leave @electric-sql/pglite out of the bundle (external) and install it where the program runs, or bundle to an ES module and copy pglite.wasm, initdb.wasm and pglite.data from node_modules/@electric-sql/pglite/dist next to it.`,
)

export const OutcomeUnknown: ErrorKind<'outcome_unknown', { eventIds: string[]; reason: string }> = defineError(
  'outcome_unknown',
  d =>
    `It is not known whether the events were stored (${d.reason}). Call store.events.has(id) with one of error.eventIds, or append again with the same ids: an event is never stored twice.`,
)

export const IntegerTooLarge: ErrorKind<'integer_too_large', { value: string }> = defineError(
  'integer_too_large',
  d =>
    `A query returned the bigint ${d.value}, which a JavaScript number cannot hold exactly. Cast the column to text in the query: column::text.`,
)
