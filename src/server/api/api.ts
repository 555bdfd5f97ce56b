/**
 * The HTTP API: the table of routes behind one handler.
 *
 *     request ─► Hono: which route ─► access: host, origin, identity, role ─► parameters ─► call ─► answer.ts ─► response
 *                                                                                              └─ audit
 *
 *     route.ts     what a route is, and its parameters      contract.ts   the answers by route, as types
 *     routes/      the table, a file a noun                 answer.ts     errors, and their status
 *     source.ts    what is needed of a store                readings.ts   readings that all requests share
 *
 * Under `{base}/api/v1`; of a store with tenants also under `{base}/api/v1/tenants/{tenant}`, where the same table is
 * mounted again.
 *
 * Guarantees:
 * - Every route is a public call of the store, and its cost does not grow with the log: pages by keyset, counts that are
 *   capped. A read has 5 s; a sender has 8 requests at the same time, and a body 1 MiB.
 * - Nothing private passes: `redact` is applied to every event, document and error before it is written.
 * - Positions are numbers, times ISO text, a list is `{ items, next }`; an error is `{ error: { code, … } }`.
 */
import { Hono } from 'hono'
import { actingAs } from '../../audit/actor.ts'
import { abortable, deadline, onAbort } from '../../core/abort.ts'
import { InvalidOption } from '../../core/errors.ts'
import { looking } from '../../database/looking.ts'
import type { Log } from '../../events/log.ts'
import { countCost } from '../../telemetry/cost.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { TenantNotFound, TenantRequired } from '../../tenants/errors.ts'
import type { Access, Identity } from '../access/access.ts'
import { checkContentType } from '../access/origin.ts'
import type { Redaction } from '../access/redact.ts'
import type { LiveConnections } from '../live/live.ts'
import type { Monitoring } from '../monitoring.ts'
import type { ServerSource } from '../server.ts'
import { answerError, answerJson, RequestRefused } from './answer.ts'
import { openApiDocument } from './openapi.ts'
import { type Operations, openOperations } from './operations.ts'
import { openReadings, type StoreReadings } from './readings.ts'
import type { ApiRequest } from './request.ts'
import { mayAct, parseBody, parseQuery, type Route } from './route.ts'
import { routes } from './routes/routes.ts'
import type { ApiStore, ApiTarget } from './source.ts'

export interface ApiParts {
  readonly target: ApiTarget
  readonly access: Access
  readonly monitoring: Monitoring
  readonly redact: Redaction
  readonly live: LiveConnections
  readonly base: string
}

export interface Api {
  /** `path` is what follows `/api/v1`. */
  answer(request: Request, path: string, address: string | undefined): Promise<Response>
}

interface Arrived {
  readonly address: string | undefined
  readonly tenant: string | undefined
  /** As it was sent: the router sees a copy with another path. */
  readonly request: Request
}

const timeoutMs = 5_000
const maxAtOnce = 8
const maxBodyBytes = 1024 * 1024

export function openApi(parts: ApiParts): Api {
  const readings = new WeakMap<Log, StoreReadings>()
  const running = new Map<string, number>()
  const operations = new WeakMap<object, Operations>()
  /** Those about all tenants belong to the target itself. */
  const operationsOf = (source: ServerSource | undefined): Operations => {
    const key = source?.log ?? parts.target
    const known = operations.get(key) ?? openOperations()
    if (!operations.has(key)) onAbort(parts.live.signal, known.close)
    operations.set(key, known)
    return known
  }
  const readingsOf = (store: ApiStore, source: ServerSource): StoreReadings => {
    const { monitoring, live } = parts
    const known = readings.get(source.log) ?? openReadings({ monitoring, store, source, signal: live.signal })
    readings.set(source.log, known)
    return known
  }

  const router = new Hono<{ Bindings: Arrived }>()
  router.get('/openapi.json', async ({ env }) => {
    parts.access.check(env)
    if ((await parts.access.identify(env)) === undefined) throw unauthenticated()
    return answerJson(openApiDocument(routes, parts.base), 200)
  })
  for (const each of routes)
    router.on(each.method, each.path, async context => {
      const arrived = context.env
      return handle(each, arrived, context.req.param() as Record<string, string>)
    })
  router.notFound(() => {
    throw new RequestRefused(404, 'not_found', 'There is no such path. GET /api/v1/openapi.json lists them.')
  })
  router.onError(error => {
    throw error
  })

  async function handle(each: Route, arrived: Arrived, parameters: Record<string, string>): Promise<Response> {
    const { request, address, tenant } = arrived
    const identity = await identify(each, arrived, parameters)
    const query = parseQuery(each.key, each.query, new URL(request.url).searchParams)
    const body = each.body === undefined ? {} : parseBody(each.key, each.body, await readBody(request))
    const { store, source } = openTarget(each, tenant, identity)
    const end = begin(`${identity.by} ${identity.name} ${address ?? ''}`)
    const limit = deadline(request.signal, timeoutMs, { what: 'The answer', clock: source?.log.clock })
    try {
      const given = {
        ...{ store, source, tenant, identity, parameters, query, body, request, address, access: parts.access },
        ...{ tenants: parts.target.tenants, redact: parts.redact, signal: limit.signal },
        live: parts.live,
        operations: operationsOf(source),
        readings: source && readingsOf(store, source),
      } as ApiRequest
      const isLook = each.role === 'read' || each.role === 'watch'
      const answer = (): Promise<unknown> => each.call(given as ApiRequest<never, never, never>)
      const call = isLook ? () => looking(answer) : answer
      const cost = { statements: 0, ms: 0 }
      const called = countCost(cost, () => (each.method === 'GET' ? call() : recorded(each, given, call)))
      const result = await abortable(called, limit.signal)
      if (result instanceof Response) return result
      const response = answerJson(result, each.status)
      const unit = cost.statements === 1 ? 'statement' : 'statements'
      response.headers.set('server-timing', `db;dur=${cost.ms.toFixed(1)};desc="${cost.statements} ${unit}"`)
      return response
    } finally {
      limit.dispose()
      end()
    }
  }

  async function identify(
    each: Route,
    { request, address, tenant }: Arrived,
    parameters: Record<string, string>,
  ): Promise<Identity> {
    const arrival = { request, address }
    parts.access.check(arrival)
    if (request.method !== 'GET' && request.method !== 'HEAD') checkContentType(request)
    const identity = await parts.access.identify(arrival)
    if (each.role === 'open') return identity ?? { name: 'anonymous', role: 'watch', by: 'loopback' }
    if (identity === undefined) throw unauthenticated()
    if (tenant !== undefined && identity.tenants !== undefined && !identity.tenants.includes(tenant))
      throw new RequestRefused(403, 'forbidden', 'You may not see this tenant.')
    if (!mayAct(identity.role, each.role)) {
      await recordRefused(each, parts.target, { tenant, identity, parameters })
      throw new RequestRefused(403, 'forbidden', `This needs the role "${each.role}". You have "${identity.role}".`)
    }
    return identity
  }

  function openTarget(each: Route, tenant: string | undefined, identity: Identity): ReturnType<ApiTarget['open']> {
    const { target } = parts
    if (target.tenants === undefined && tenant !== undefined) throw new TenantNotFound({ tenant })
    if (target.tenants !== undefined && tenant === undefined && !each.isOfStore)
      throw new TenantRequired({ call: each.key })
    if (each.isOfStore && identity.tenants !== undefined && each.path.startsWith('/tenants'))
      throw new RequestRefused(403, 'forbidden', 'You may see some tenants, and this is about all of them.')
    return target.open(tenant)
  }

  /** Counts a request of a sender, until the function returned is called. */
  function begin(sender: string): () => void {
    const count = running.get(sender) ?? 0
    if (count >= maxAtOnce)
      throw new RequestRefused(429, 'overloaded', `At most ${maxAtOnce} requests at the same time are answered.`, {
        'retry-after': '1',
      })
    running.set(sender, count + 1)
    return () => {
      const left = (running.get(sender) ?? 1) - 1
      if (left === 0) running.delete(sender)
      else running.set(sender, left)
    }
  }

  return {
    async answer(request, path, address) {
      const ofTenant = parts.target.tenants === undefined ? null : /^\/tenants\/([^/]+)(\/.*)$/.exec(path)
      const isOwn = ofTenant !== null && !isTenantRoute(request.method, path)
      const tenant = isOwn ? decodeURIComponent(ofTenant[1]!) : undefined
      const url = new URL(request.url)
      url.pathname = isOwn ? ofTenant[2]! : path
      try {
        return await router.fetch(new Request(url, { method: request.method }), { address, tenant, request })
      } catch (error) {
        return answerError(error, firstTelemetry(parts.target, tenant))
      }
    },
  }
}

/** Actions are recorded under the name of their sender: most of them by the store itself, the others here. */
async function recorded(each: Route, given: ApiRequest, call: () => Promise<unknown>): Promise<unknown> {
  const { store, source, identity, parameters, tenant } = given
  if (each.role === 'open') return call()
  const [target] = Object.values(parameters)
  const { name, role } = identity
  const report = (outcome: 'done' | 'failed'): void =>
    source?.log.telemetry.publish(channels.action, () => ({ route: each.key, tenant, name, role, parameters, outcome }))
  try {
    const result = await actingAs(name, () =>
      each.audit === undefined ? call() : store.audit.record({ action: each.audit, target, parameters }, call),
    )
    report('done')
    return result
  } catch (error) {
    report('failed')
    throw error
  }
}

/** An action that its sender may not do is in the audit, too. */
async function recordRefused(
  each: Route,
  target: ApiTarget,
  { tenant, identity, parameters }: { tenant: string | undefined; identity: Identity; parameters: object },
): Promise<void> {
  if (each.method === 'GET' || (target.tenants !== undefined && tenant === undefined)) return
  const { store } = target.open(tenant)
  const refuse = async (): Promise<never> => {
    throw new RequestRefused(403, 'forbidden', `It needs the role "${each.role}".`)
  }
  const action = { action: 'http.refused', target: each.key, parameters: { ...parameters, role: identity.role } }
  await actingAs(identity.name, () => store.audit.record(action, refuse)).catch(() => {})
}

/** Routes about tenants themselves, which stand where the table is mounted for each of them. */
function isTenantRoute(method: string, path: string): boolean {
  return routes.some(
    each =>
      each.method === method &&
      each.path.startsWith('/tenants/') &&
      new RegExp(`^${each.path.replace(/:[^/]+/g, '[^/]+')}$`).test(path),
  )
}

function firstTelemetry(target: ApiTarget, tenant: string | undefined): Log['telemetry'] | undefined {
  try {
    return target.open(tenant).source?.log.telemetry
  } catch {
    return undefined
  }
}

async function readBody(request: Request): Promise<unknown> {
  const announced = Number(request.headers.get('content-length') ?? 0)
  if (announced > maxBodyBytes) throw tooLarge()
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += chunk.length
    if (bytes > maxBodyBytes) throw tooLarge()
    chunks.push(chunk)
  }
  const text = Buffer.concat(chunks).toString()
  if (text === '') return {}
  try {
    return JSON.parse(text)
  } catch {
    throw new InvalidOption({ option: 'body', reason: 'The body is not JSON.' })
  }
}

function unauthenticated(): RequestRefused {
  return new RequestRefused(401, 'unauthenticated', 'Send the token in the header "Authorization: Bearer …".', {
    'www-authenticate': 'Bearer',
  })
}

function tooLarge(): RequestRefused {
  return new RequestRefused(413, 'body_too_large', 'A body may have at most 1 MiB.', { connection: 'close' })
}
