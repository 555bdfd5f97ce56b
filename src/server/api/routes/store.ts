/** The store as a whole: what it is, its figures, and logging in. */
import { hostname } from 'node:os'
import { packageVersion } from '../../../core/package-version.ts'
import { historyRanges } from '../../live/ring.ts'
import type { HistoryRange } from '../contract.ts'
import { readNeeds } from '../needs.ts'
import { type Route, route } from '../route.ts'

/** The page asks as often. */
const sharedMs = 4_000

const startedAt = new Date(Date.now() - process.uptime() * 1000)

export const storeRoutes: readonly Route[] = [
  route('GET /', {
    role: 'watch',
    summary: 'The store, the process that answers, and your role',
    isOfStore: true,
    call: async ({ store, tenants, tenant, identity: { name, role } }) => ({
      version: packageVersion(),
      engine: store.engine,
      schema: tenants !== undefined && tenant === undefined ? undefined : store.schema.name,
      hasTenants: tenants !== undefined,
      tenant,
      name,
      role,
      process: { pid: process.pid, host: hostname(), startedAt },
    }),
  }),
  route('GET /overview', {
    role: 'watch',
    summary: 'The figures of the store, what needs a person, and the newest failures',
    cli: 'rillflow status',
    async call({ store, readings, identity, redact }) {
      const figures = await readings.figures()
      const log =
        figures.position < figures.head
          ? await readings.expensive('settled', () => store.events.settled(), sharedMs)
          : undefined
      const needs = readNeeds(log, figures)
      const readFailures = () => store.workflows.attempts({ outcome: 'failed', limit: 10 })
      const failures =
        identity.role === 'watch' ? [] : (await readings.expensive('failures', readFailures, sharedMs)).items
      return { ...figures, needs, failures: failures.map(each => ({ ...each, error: redact.error(each.error) })) }
    },
  }),
  route('GET /history', {
    role: 'watch',
    summary: 'Figures over time, as far as this process knows them',
    query: { range: { kind: 'text', choices: historyRanges, summary: 'Default: 5m' } },
    call: ({ readings, query }) => readings.history((query.range as HistoryRange | undefined) ?? '5m'),
  }),
  route('GET /log', {
    role: 'read',
    summary: 'How far the log is settled, and the transactions that hold it back',
    cli: 'rillflow status',
    call: ({ store }) => store.events.settled(),
  }),
  route('GET /process', {
    role: 'watch',
    summary: 'The process that answers: its memory, its connections and its counters since the store was opened',
    call: async ({ store, source }) => ({
      pid: process.pid,
      host: hostname(),
      node: process.version,
      uptimeSeconds: process.uptime(),
      memoryBytes: process.memoryUsage.rss(),
      connections: { ...source.log.database.connections() },
      counters: store.metrics(),
    }),
  }),
  route('POST /session', {
    role: 'open',
    summary: 'Exchanges the token for a cookie',
    isOfStore: true,
    body: {
      token: { kind: 'text', required: true, summary: 'The token of the server' },
      name: { kind: 'text', summary: 'Your name, for the audit' },
    },
    async call({ access, request, address, body }) {
      const { session, cookie } = access.logIn({ request, address }, { token: body.token, name: body.name })
      return Response.json(session, { headers: { 'set-cookie': cookie, 'cache-control': 'no-store' } }) as never
    },
  }),
  route('DELETE /session', {
    role: 'open',
    summary: 'Ends the session of the cookie',
    isOfStore: true,
    async call({ access, request, address }) {
      const cookie = access.logOut({ request, address })
      return Response.json({ done: true }, { headers: { 'set-cookie': cookie, 'cache-control': 'no-store' } }) as never
    },
  }),
]
