/**
 * How an error is defined, and the errors that belong to no other folder. Each folder has its own in `errors.ts`, and
 * `src/errors.ts` lists all of them.
 *
 * An error has a stable `code`, the data it is about, whether the same call can succeed when it is tried again, and a
 * message that says what happened, what was expected and what to try. Programs branch on `code` (or
 * `isRillflowError(e, code)`), never on the message. `instanceof` works across two copies of the package, because an
 * error is identified by its code and a registered symbol, not by the class object. All of it survives
 * `JSON.stringify`.
 */
const brand = Symbol.for('rillflow.error')

/**
 * Every error of the store.
 *
 * @example
 * ```ts
 * const pageOf = (error: RillflowError) => `${error.code}: see ${error.docs}`
 * ```
 */
export class RillflowError extends Error {
  readonly code: string
  /** Whether the same call can succeed when it is tried again. */
  readonly retryable: boolean

  constructor(code: string, message: string, options: { retryable?: boolean; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? false
    Object.defineProperty(this, brand, { value: true })
  }

  /** The page about this error, in the package: `node_modules/rillflow/docs/reference/errors/version_conflict.md`. */
  get docs(): string {
    return `node_modules/rillflow/${errorPage(this.code)}`
  }

  toJSON(): Record<string, unknown> {
    const { name, message, code, retryable, ...data } = this
    return { ...data, name: this.name, code, retryable, message: this.message }
  }
}

/** The page about an error, in the folder of the package. */
export function errorPage(code: string): string {
  return `docs/reference/errors/${code}.md`
}

/**
 * True for an error of this library, of the given code if one is given.
 *
 * @example
 * ```ts
 * try {
 *   await store.events.append('order-9', placed, { expected: 7 })
 * } catch (error) {
 *   if (isRillflowError(error, 'version_conflict')) console.log(error.code)
 * }
 * ```
 */
export function isRillflowError<C extends string>(
  error: unknown,
  code?: C,
): error is RillflowError & { readonly code: C } {
  const known = error as { [brand: symbol]: unknown; code?: string } | null
  return typeof error === 'object' && known?.[brand] === true && (code === undefined || known.code === code)
}

/** The same error, of a call that begins anew each time and so can succeed when it is made again. */
export function asRetryable<E extends RillflowError>(error: E): E {
  return Object.assign(error, { retryable: true })
}

/** The class of one kind of error: `new VersionConflict({ stream, expected, actual })`. */
export interface ErrorKind<C extends string, D extends object> {
  new (data: TextOr<D>, cause?: unknown): RillflowError & { readonly code: C } & Readonly<D>
  readonly code: C
}

/** An error that has nothing but a reason takes it as text, too. */
type TextOr<D extends object> = keyof D extends 'reason' ? ('reason' extends keyof D ? D | string : D) : D

/** Declares one kind of error; its class name is the code in PascalCase. */
export function defineError<C extends string, D extends object>(
  code: C,
  message: (data: D) => string,
  options: { retryable?: boolean } = {},
): ErrorKind<C, D> {
  const name = code.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())
  const kind = class extends RillflowError {
    static readonly code = code
    constructor(given: D | string | undefined, cause?: unknown) {
      const data = (typeof given === 'string' ? { reason: given } : (given ?? {})) as D
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

/** `reason` is the message: whole sentences that name the definition or the option, the fault and what is expected. */
export const InvalidOption: ErrorKind<'invalid_option', { option: string; reason: string }> = defineError(
  'invalid_option',
  d => d.reason,
)
export const InvalidName: ErrorKind<'invalid_name', { what: string; given: string; reason: string }> = defineError(
  'invalid_name',
  d => `${d.what} ${JSON.stringify(d.given.slice(0, 80))} ${d.reason}.`,
)

export const StoreClosed: ErrorKind<'store_closed', object> = defineError(
  'store_closed',
  () => 'The store is closed. Open another one with openStore(), or make the call before close().',
)
export const Aborted: ErrorKind<'aborted', object> = defineError(
  'aborted',
  () => 'The call was aborted by its signal before it took effect. error.cause is the reason of the signal.',
)
/** `missing`: the thing it waits for, in whole sentences, where the store knows it. */
export const TimedOut: ErrorKind<'timed_out', { what: string; timeoutMs: number; missing?: string | undefined }> =
  defineError(
    'timed_out',
    d =>
      `${d.what} did not happen within ${d.timeoutMs} ms. ${d.missing ?? 'Raise timeoutMs, or look for the cause of the delay.'}`,
    { retryable: true },
  )
export const Overloaded: ErrorKind<'overloaded', { queue: string; limit: number }> = defineError(
  'overloaded',
  d =>
    `The ${d.queue} queue is full: it has its limit of ${d.limit} entries. Await earlier calls before you make more, then try again.`,
  { retryable: true },
)

export const InvalidEvent: ErrorKind<
  'invalid_event',
  { type: string; path: string; reason: string; eventId?: string | undefined }
> = defineError('invalid_event', d => {
  const event = d.type === '' ? 'An event without a type' : `Event ${d.type}`
  const effect = d.eventId === undefined ? 'Nothing was sent.' : `It is stored like this, as event ${d.eventId}.`
  return `${event} is not valid: ${d.path} ${d.reason}. ${effect}`.replace('?. ', '? ')
})

export const ConsumerTimeout: ErrorKind<'consumer_timeout', { consumer: string; timeoutMs: number }> = defineError(
  'consumer_timeout',
  d =>
    `The code of "${d.consumer}" had not returned after ${d.timeoutMs} ms, so its transaction was rolled back. Move slow work out of it (a subscription may await the network), or raise timeoutMs.`,
)

export const DuplicateConsumer: ErrorKind<'duplicate_consumer', { consumer: string }> = defineError(
  'duplicate_consumer',
  d =>
    `A consumer "${d.consumer}" is registered in this store already. Register each consumer once, or give this one another name.`,
)
