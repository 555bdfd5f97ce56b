/**
 * For programs that answer HTTP, published as `rillflow/http`: in any framework that knows the web's `Request` and
 * `Response`, such as Hono and Next, and through `nodeListener` in Express, Fastify and `node:http`.
 *
 *     eventStream      events as they come, as server-sent events: a browser that reconnects misses none
 *     idempotencyKey   the header that makes a repeated request harmless
 *     errorResponse    an error of the store as a status and a body
 *     nodeListener     a handler of web requests for servers with Node's own
 *
 * It needs no server of the store, and takes nothing from a framework but the request.
 */
import { getRequestListener } from '@hono/node-server'
import { onAbort } from '../core/abort.ts'
import { InvalidOption, isRillflowError } from '../core/errors.ts'
import { optionNames, refuseUnknownOptions } from '../core/options.ts'
import type { EventMap, RecordedEvent } from '../events/definition.ts'
import type { From } from '../events/read/log.ts'
import { answerJson, refusalOf, statusOf } from '../server/api/answer.ts'
import { answerSentEvents, openOutbox } from '../server/live/sent-events.ts'
import type { Store } from '../store.ts'

/** A request of the web, of Node, of Express or of Fastify. */
export interface AnyRequest {
  readonly headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>
  readonly url?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/**
 * Which events a client gets, from where on, and the part of them that it may see.
 *
 * @example
 * ```ts
 * const options: EventStreamOptions = { types: ['OrderShipped'], from: 'now' }
 * ```
 */
export interface EventStreamOptions<Type extends string = string, Event = RecordedEvent> {
  /** Only events of these types. Default: all. */
  types?: readonly Type[] | undefined
  /** Only events of these streams. */
  streams?: readonly string[] | undefined
  /** Only events of streams whose name begins with one of these, up to its first `-`. */
  categories?: readonly string[] | undefined
  /** Only events of one workflow or request. */
  correlationId?: string | undefined
  /** Where a client begins that has not been here before. Default 'now'. */
  from?: From | undefined
  /** The part of an event that clients may see, or undefined to leave it out. Default: all of it, as JSON. */
  show?: ((event: Event) => unknown) | undefined
  /** Ends the stream, as the client's leaving does. */
  signal?: AbortSignal | undefined
}

const eventStreamOptionNames: readonly string[] = optionNames<EventStreamOptions>({
  ...{ types: true, streams: true, categories: true, correlationId: true, from: true, show: true, signal: true },
})

/**
 * Events as server-sent events. Each message has the position of its event as `id`, which a browser sends back as
 * `Last-Event-ID` after a break: it continues there, and misses none. A first request may give it as `?after=`.
 *
 *     app.get('/orders/live', c => eventStream(store, c.req.raw, { types: ['OrderPlaced'] }))      Hono
 *     app.get('/orders/live', nodeListener(request => eventStream(store, request)))                Express
 *     app.get('/orders/live', request => eventStream(store, request.raw))                          Fastify
 *     export const GET = (request: Request) => eventStream(store, request)                         Next
 *
 * @example
 * ```ts
 * const live = (request: Request) => eventStream(store, request, { types: ['OrderShipped'] })
 * ```
 */
export async function eventStream<M extends EventMap, Type extends keyof M & string = keyof M & string>(
  store: Pick<Store<M>, 'events'>,
  request: AnyRequest,
  options: EventStreamOptions<Type, RecordedEvent<Pick<M, Type>>> = {},
): Promise<Response> {
  refuseUnknownOptions('eventStream', options, eventStreamOptionNames)
  const { from = 'now', show = event => event, signal, ...filter } = options
  const { settled } = await store.events.settled()
  const start = startOf(request, from, settled)
  const ended = new AbortController()
  const end = (): void => ended.abort()
  const releases = [signal, request.signal].map(each => each && onAbort(each, end))
  onAbort(ended.signal, () => {
    for (const release of releases) release?.()
  })
  const outbox = openOutbox()
  // Before the first event the client has an id already, so a break then loses none either.
  let waiting = start === 'start' ? '' : `id: ${start}\n\n`
  outbox.added()

  void follow().catch(end)
  return answerSentEvents({ outbox, take, signal: ended.signal, onLeave: end })

  async function follow(): Promise<void> {
    for await (const event of store.events.tail<Type>({ ...filter, from: start, signal: ended.signal })) {
      const shown = show(event)
      waiting += `id: ${event.position}\n${shown === undefined ? '' : `data: ${JSON.stringify(shown)}\n`}\n`
      outbox.added()
      await outbox.room(ended.signal)
    }
  }
  function take(): string {
    const text = waiting
    waiting = ''
    outbox.emptied()
    return text
  }
}

/** After the last event that the client has. One beyond the head is from before the log was restored. */
function startOf(request: AnyRequest, from: From, head: number): 'start' | number {
  const after = headerOf(request, 'last-event-id') || parameterOf(request, 'after')
  if (after === undefined || after === '') return from === 'now' ? head : from
  if (!/^\d{1,16}$/.test(after))
    throw new InvalidOption({
      option: 'Last-Event-ID',
      reason: `The header Last-Event-ID, or the parameter "after", must be the position of an event, not ${JSON.stringify(after.slice(0, 40))}.`,
    })
  return Math.min(Number(after), head)
}

/**
 * The key of the header `Idempotency-Key`, for the option of that name: a request that is sent again then has the first
 * one's outcome. Undefined if there is none.
 *
 *     await store.events.append(stream, event, { idempotencyKey: idempotencyKey(request) })
 *
 * @example
 * ```ts
 * const place = (request: Request) =>
 *   store.events.append('order-5', placed, { idempotencyKey: idempotencyKey(request) })
 * ```
 */
export function idempotencyKey(request: AnyRequest): string | undefined {
  const given = headerOf(request, 'idempotency-key')
  if (given === undefined) return undefined
  // The standard's form is a quoted string; most clients send it bare.
  const key = /^"(.*)"$/.exec(given)?.[1] ?? given
  if (!/^[\x20-\x7e]{1,255}$/.test(key) || key.trim() === '')
    throw new InvalidOption({
      option: 'Idempotency-Key',
      reason: 'The header Idempotency-Key must have 1 to 255 printable characters of ASCII.',
    })
  return key
}

/**
 * An error of the store as a response: 409 for a lost race or a key that was used for something else, 404, 400, 429 and
 * 503 with `Retry-After`. The body has `code`, `message`, `retryable` and the data of the error; of a failure of the
 * server only its code. Any other error is thrown again: it is your program's, or its framework's, to answer.
 *
 * @example
 * ```ts
 * const answer = await store.events.append('order-9', placed, { expected: 7 }).catch(errorResponse)
 * ```
 */
export function errorResponse(error: unknown): Response {
  if (!isRillflowError(error)) throw error
  const status = statusOf(error.code)
  const { body, headers } = refusalOf(error, status)
  // Messages about the server are for its operators.
  const hidden = status >= 500 ? { message: 'The request cannot be answered at present.', data: {} } : {}
  const response = answerJson({ error: { ...body.error, ...hidden } }, status)
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value)
  return response
}

/**
 * A handler for `node:http`, Express and Fastify's raw requests.
 *
 * @example
 * ```ts
 * const listener: NodeListener = nodeListener(() => new Response('hello'))
 * ```
 */
export type NodeListener = (
  incoming: import('node:http').IncomingMessage,
  outgoing: import('node:http').ServerResponse,
) => Promise<void>

/**
 * A handler of web requests, such as that of `store.http`, for servers with Node's own requests:
 * `app.use('/admin', nodeListener(handler))` in Express. A body that a parser of Express or Fastify has read already is
 * given on.
 *
 * @example
 * ```ts
 * import { createServer } from 'node:http'
 * const server = createServer(nodeListener(request => eventStream(store, request)))
 * ```
 */
export function nodeListener(handle: (request: Request) => Response | Promise<Response>): NodeListener {
  const listener = getRequestListener(handle, { overrideGlobalObjects: false, hostname: 'localhost' })
  return async (incoming, outgoing) => {
    const { body, readableEnded } = incoming as typeof incoming & { body?: unknown }
    if (readableEnded && body !== undefined)
      Object.assign(incoming, { rawBody: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)) })
    await listener(incoming, outgoing)
  }
}

function headerOf({ headers }: AnyRequest, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined
  const value = headers[name]
  return typeof value === 'string' ? value : value?.[0]
}

function parameterOf({ url }: AnyRequest, name: string): string | undefined {
  return url === undefined ? undefined : (new URL(url, 'http://localhost').searchParams.get(name) ?? undefined)
}
