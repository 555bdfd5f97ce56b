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
    return { ...data, name: this.name, code, retryable, message: this.message }
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

/** A reason that begins with a capital letter is a message of its own; any other one follows the name of the option. */
export const InvalidOption: ErrorKind<'invalid_option', { option: string; reason: string }> = defineError(
  'invalid_option',
  d => (/^[A-Z]/.test(d.reason) ? d.reason : `Option ${d.option}: ${d.reason}.`),
)
export const InvalidName: ErrorKind<'invalid_name', { what: string; given: string; reason: string }> = defineError(
  'invalid_name',
  d => `${d.what} ${JSON.stringify(d.given.slice(0, 80))} ${d.reason}.`,
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

export const InvalidEvent: ErrorKind<
  'invalid_event',
  { type: string; path: string; reason: string; eventId?: string | undefined }
> = defineError('invalid_event', d => {
  const told = d.eventId === undefined ? 'Nothing was sent.' : `It is stored so, as event ${d.eventId}.`
  return `Event ${d.type === '' ? 'without type' : d.type}: ${d.path} ${d.reason}. ${told}`
})

export const HandlerTimeout: ErrorKind<'handler_timeout', { consumer: string; timeoutMs: number }> = defineError(
  'handler_timeout',
  d =>
    `The handler of "${d.consumer}" had not come back after ${d.timeoutMs} ms; its transaction was rolled back. Move slow
work out of it (a subscription may await the network), or raise timeoutMs.`.replace('\n', ' '),
)

export const DuplicateConsumer: ErrorKind<'duplicate_consumer', { consumer: string }> = defineError(
  'duplicate_consumer',
  d => `A consumer "${d.consumer}" is registered in this store already. Register each once, or give it another name.`,
)
