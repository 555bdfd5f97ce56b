/**
 * Every error the store raises, in one catalogue.
 *
 * An error is a stable `code`, the data it is about, whether trying the same call again can help, and a sentence
 * that says what happened, what was expected and what to try. Branch on `code` (or `isRillflowError(e, code)`),
 * never on the message. `instanceof` works across two copies of the package, because identity is the code and a
 * registered symbol, not the class object. All of it survives `JSON.stringify`.
 */
const brand = Symbol.for('rillflow.error')

export class RillflowError extends Error {
  readonly code: string
  /** Whether the same call can succeed when it is simply tried again. */
  readonly retryable: boolean

  constructor(code: string, message: string, options: { retryable?: boolean; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? false
    Object.defineProperty(this, brand, { value: true })
  }

  toJSON(): Record<string, unknown> {
    const { name, message, code, retryable, ...data } = this
    return { ...mapValues(data, jsonSafe), name: this.name, code, retryable, message: this.message }
  }
}

/** True for an error of this library, of the given code if one is given. */
export function isRillflowError<C extends string>(
  error: unknown,
  code?: C,
): error is RillflowError & { readonly code: C } {
  const known = error as { [brand: symbol]: unknown; code?: string } | null
  return typeof error === 'object' && known?.[brand] === true && (code === undefined || known.code === code)
}

/** The class of one kind of error: `new VersionConflict({ stream, expected, actual })`. */
export interface ErrorKind<C extends string, D extends object> {
  new (data: D, cause?: unknown): RillflowError & { readonly code: C } & Readonly<D>
  readonly code: C
}

/** Declares one kind of error; its class name is the code in PascalCase. */
export function defineError<C extends string, D extends object>(
  code: C,
  message: (data: D) => string,
  options: { retryable?: boolean } = {},
): ErrorKind<C, D> {
  const name = code.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())
  const kind = class extends RillflowError {
    static readonly code = code
    constructor(data: D, cause?: unknown) {
      super(code, message(data), { ...options, cause })
      Object.defineProperty(this, 'name', { value: name, enumerable: false })
      Object.assign(this, data)
    }
    static override [Symbol.hasInstance](value: unknown): boolean {
      return isRillflowError(value, code)
    }
  }
  Object.defineProperty(kind, 'name', { value: name })
  return kind as unknown as ErrorKind<C, D>
}

// ── The store ────────────────────────────────────────────────────────────────────────────────────────────────

export const InvalidOption: ErrorKind<'invalid_option', { option: string; reason: string }> = defineError(
  'invalid_option',
  d => `Option ${d.option}: ${d.reason}.`,
)
export const StoreClosed: ErrorKind<'store_closed', object> = defineError(
  'store_closed',
  () => 'The store is closed. Open a new one with openStore(), or move the call before close().',
)
export const Aborted: ErrorKind<'aborted', object> = defineError(
  'aborted',
  () => 'The call was aborted by its signal before it took effect; error.cause is the reason given.',
)
export const TimedOut: ErrorKind<'timed_out', { what: string; timeoutMs: number }> = defineError(
  'timed_out',
  d => `${d.what} did not happen within ${d.timeoutMs} ms. Give it more timeoutMs, or look at what holds it back.`,
  { retryable: true },
)
export const Overloaded: ErrorKind<'overloaded', { queue: string; limit: number }> = defineError(
  'overloaded',
  d => `The ${d.queue} queue holds its limit of ${d.limit}. Await earlier calls before making more, then try again.`,
  { retryable: true },
)

// ── The database ─────────────────────────────────────────────────────────────────────────────────────────────

export const DatabaseUnreachable: ErrorKind<'database_unreachable', { address: string; reason: string }> = defineError(
  'database_unreachable',
  d => `No PostgreSQL server answers at ${d.address} (${d.reason}). Start it, or check host and port in the url.`,
  { retryable: true },
)
export const AuthenticationFailed: ErrorKind<'authentication_failed', { user: string; reason: string }> = defineError(
  'authentication_failed',
  d => `The server refused user "${d.user}" (${d.reason}). Check user and password in the url.`,
)
export const DatabaseMissing: ErrorKind<'database_missing', { database: string }> = defineError(
  'database_missing',
  d => `There is no database "${d.database}" on this server. Create it (createdb "${d.database}") or correct the url.`,
)
export const ServerUnsupported: ErrorKind<'server_unsupported', { version: string; oldest: number }> = defineError(
  'server_unsupported',
  d => `The server runs PostgreSQL ${d.version}; ${d.oldest} or newer is needed. Upgrade it or use another server.`,
)
export const ServerInRecovery: ErrorKind<'server_in_recovery', object> = defineError(
  'server_in_recovery',
  () => 'The server is a standby in recovery and cannot tell which events are settled. Connect to the primary.',
  { retryable: true },
)
export const ConnectionLost: ErrorKind<'connection_lost', { reason: string }> = defineError(
  'connection_lost',
  d => `The connection to the database was lost (${d.reason}). The store reconnects by itself: try the call again.`,
  { retryable: true },
)
export const SerializationFailed: ErrorKind<'serialization_failed', { reason: string }> = defineError(
  'serialization_failed',
  d => `The transaction collided with another one (${d.reason}) and was rolled back. Run it again from its start.`,
  { retryable: true },
)
export const DatabaseFailed: ErrorKind<'database_failed', { sqlState: string; reason: string; statement: string }> =
  defineError(
    'database_failed',
    d => `The database refused ${d.statement}: ${d.reason} (SQLSTATE ${d.sqlState}). See error.cause for its details.`,
  )
export const InsideTransaction: ErrorKind<'inside_transaction', { call: string }> = defineError(
  'inside_transaction',
  d =>
    `${d.call} was called inside an open transaction of this store, where it would run outside of it or wait for it
for ever. Pass the transaction along ({ tx }), or make the call after the transaction.`.replace('\n', ' '),
)
export const TransactionClosed: ErrorKind<'transaction_closed', object> = defineError(
  'transaction_closed',
  () =>
    'This transaction has ended; its handle is of no more use. Do the work inside the function, and await it there.',
)
export const TransactionTimeout: ErrorKind<'transaction_timeout', { timeoutMs: number }> = defineError(
  'transaction_timeout',
  d =>
    `The transaction was still open after ${d.timeoutMs} ms and was rolled back. Move slow work (network calls) out
of it, or raise timeoutMs.`.replace('\n', ' '),
)
export const FolderLocked: ErrorKind<'folder_locked', { folder: string; pid: number; host: string; since: string }> =
  defineError(
    'folder_locked',
    d =>
      `Folder ${d.folder} is in use by process ${d.pid} on ${d.host} since ${d.since}. Two processes in one folder
lose data: stop the other one, give this one another folder, or use a server ({ url }).`.replace('\n', ' '),
    { retryable: true },
  )
export const FolderNotEmpty: ErrorKind<'folder_not_empty', { folder: string }> = defineError(
  'folder_not_empty',
  d =>
    `The folder ${d.folder} is not empty, and a restore replaces nothing. Give a new folder, or move the old one away.`,
)
export const FolderNotWritable: ErrorKind<'folder_not_writable', { folder: string; reason: string }> = defineError(
  'folder_not_writable',
  d => `The embedded store cannot write to ${d.folder} (${d.reason}). Mend its permissions or give another folder.`,
)
export const FolderVersionMismatch: ErrorKind<
  'folder_version_mismatch',
  { folder: string; found: string; expected: string }
> = defineError('folder_version_mismatch', d =>
  `Folder ${d.folder} was written by PostgreSQL ${d.found}; this version of the embedded engine is PostgreSQL
${d.expected} and cannot read it. Export with the version that wrote it, then import into a new folder.`.replace(
    '\n',
    ' ',
  ),
)

// ── The schema ───────────────────────────────────────────────────────────────────────────────────────────────

export const SchemaMissing: ErrorKind<'schema_missing', { schema: string }> = defineError(
  'schema_missing',
  d => `The database has no schema "${d.schema}" with a store in it. Open it once with { migrate: true } to make one.`,
)
export const SchemaOutdated: ErrorKind<'schema_outdated', { schema: string; pending: string[] }> = defineError(
  'schema_outdated',
  d =>
    `Schema "${d.schema}" lacks ${d.pending.join(', ')}. Open the store once with { migrate: true }, or open it with
{ migrate: 'manual' } and call store.schema.sync().`.replace('\n', ' '),
)
export const SchemaNewer: ErrorKind<'schema_newer', { schema: string; found: number; known: number }> = defineError(
  'schema_newer',
  d => `Schema "${d.schema}" is at migration ${d.found}, this library knows up to ${d.known}. Update rillflow here.`,
)
export const SchemaDrift: ErrorKind<'schema_drift', { schema: string; problems: string[] }> = defineError(
  'schema_drift',
  d => `Schema "${d.schema}" is not what its migrations made: ${d.problems.join('; ')}. Undo the manual change.`,
)

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────

export const InvalidEvent: ErrorKind<
  'invalid_event',
  { type: string; path: string; reason: string; eventId?: string | undefined }
> = defineError('invalid_event', d => {
  const told = d.eventId === undefined ? 'Nothing was sent.' : `It is stored so, as event ${d.eventId}.`
  return `Event ${d.type === '' ? 'without type' : d.type}: ${d.path} ${d.reason}. ${told}`
})
export const InvalidName: ErrorKind<'invalid_name', { what: string; given: string; reason: string }> = defineError(
  'invalid_name',
  d => `${d.what} ${JSON.stringify(d.given.slice(0, 80))} ${d.reason}.`,
)
export const VersionConflict: ErrorKind<
  'version_conflict',
  { stream: string; expected: number | 'empty' | 'exists'; actual: number }
> = defineError(
  'version_conflict',
  d => `Stream ${d.stream} is at version ${d.actual}, expected was ${d.expected}. Read it again, decide again, append.`,
)
export const IdempotencyMismatch: ErrorKind<'idempotency_mismatch', { key: string }> = defineError(
  'idempotency_mismatch',
  d => `Idempotency key ${JSON.stringify(d.key)} was used before for an append with other content. Use a new key.`,
)
export const IdempotencyConflict: ErrorKind<'idempotency_conflict', { key: string }> = defineError(
  'idempotency_conflict',
  d => `Idempotency key ${JSON.stringify(d.key)} was used before, and onRepeat is 'error'. The first append stands.`,
)
export const DuplicateEventId: ErrorKind<'duplicate_event_id', { eventIds: string[] }> = defineError(
  'duplicate_event_id',
  d => `Event id ${d.eventIds.join(', ')} is taken by another event. Leave the id out, or make a new one per event.`,
)
export const OutcomeUnknown: ErrorKind<'outcome_unknown', { eventIds: string[]; reason: string }> = defineError(
  'outcome_unknown',
  d =>
    `Whether the events were stored is not known (${d.reason}). Ask store.events.has(id) for one of error.eventIds, or
append again with the same ids: an event is never stored twice.`.replace('\n', ' '),
)
export const StreamArchived: ErrorKind<'stream_archived', { stream: string }> = defineError(
  'stream_archived',
  d => `Stream ${d.stream} is archived. Restore it (store.streams.restore), or append with { allowArchived: true }.`,
)
export const StreamTombstoned: ErrorKind<'stream_tombstoned', { stream: string }> = defineError(
  'stream_tombstoned',
  d => `Stream ${d.stream} was tombstoned and takes no more events, ever. Use another stream.`,
)
export const StreamNotFound: ErrorKind<'stream_not_found', { stream: string; nearest?: string | undefined }> =
  defineError('stream_not_found', d => {
    const hint = d.nearest === undefined ? 'Append to it first, or check the name.' : `Did you mean "${d.nearest}"?`
    return `There is no stream ${d.stream}. ${hint}`
  })
export const UpcasterCycle: ErrorKind<'upcaster_cycle', { path: string[] }> = defineError(
  'upcaster_cycle',
  d => `These upcasters lead back to where they start: ${d.path.join(' → ')}. Remove one of them.`,
)
export const UpcasterFailed: ErrorKind<'upcaster_failed', { type: string; schemaVersion: number; eventId: string }> =
  defineError(
    'upcaster_failed',
    d => `The upcaster of ${d.type} version ${d.schemaVersion} failed on event ${d.eventId}; error.cause says why.`,
  )
export const ImportMismatch: ErrorKind<'import_mismatch', { importName: string; imported: number }> = defineError(
  'import_mismatch',
  d =>
    `Import "${d.importName}" has ${d.imported} events already, and the first ${d.imported} of this source are not those.
Resume with the same source in the same order, or give the import another name.`.replace('\n', ' '),
)
export const LogRewound: ErrorKind<'log_rewound', { cursor: bigint; head: bigint; reason: string }> = defineError(
  'log_rewound',
  d =>
    `The log is not the one that was read before (${d.reason}; read up to ${d.cursor}, head is now ${d.head}). The server
was restored or a standby that lacks the last writes took over. Start again from a position you trust.`.replace(
      '\n',
      ' ',
    ),
)

function mapValues(data: object, change: (value: unknown) => unknown): Record<string, unknown> {
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, change(value)]))
}

function jsonSafe(value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value
}
