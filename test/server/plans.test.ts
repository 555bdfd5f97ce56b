/** Every route that reads is bounded: on a store of 200,000 events no table that grows is scanned, and few rows are read. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { toText } from '../../src/database/pglite/wire.ts'
import { identifier, literal, type Statement } from '../../src/database/sql.ts'
import * as library from '../../src/index.ts'
import { routes } from '../../src/server/api/routes/routes.ts'
import type { StoreServer } from '../../src/server/server.ts'
import { openStore, type Store } from '../../src/store.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { fillStore, type LargeRequest, largeShop, prepare, requests } from '../support/large-store.ts'
import { recording } from '../support/query-plans.ts'

const events = 200_000

/** Tables that grow with use; what is delivered and not passed yet is limited, and small. */
const large = [
  ...['events', 'streams', 'workflows', 'workflow_activity', 'workflow_executions', 'dead_letters', 'audit'],
  ...['snapshots', 'customers', 'customers__history'],
]
/** Of states that many executions are in, the first ones are found by reading the table from its beginning. */
const mayBeScanned = 'workflow_executions'

/** The figures that the ring samples by itself, also while another request is answered. */
const sampled = ['consumers.metrics', 'workflows.queues', 'workflows.count_open', 'workflows.totals', 'workflows.alive']

/** The most rows that the statements of a request may touch, in tables that grow. */
const maxRows = 5_000
const counts: readonly [number, string] = [150_000, 'counts up to 10,000 of each handler, consumer and state']
const moreRows: Readonly<Record<string, readonly [number, string]>> = {
  'a rare type': [100_000, 'a page looks at ten windows of 10,000 positions'],
  'failed, and none is': [25_000, 'a page looks at 1,000 workflows'],
  'a rare action': [10_100, 'a page looks at 10,000 entries'],
  'of a handler': [40_100, 'looks at the latest 10,000 of each state'],
  'of a handler and a state': [60_100, 'looks at 10,000 executions'],
  'GET /executions': [30_100, 'looks at 1,000 executions of each handler and state'],
  'GET /events/types': [10_000, 'the types of the newest 10,000 events'],
  'GET /dead-letters/groups': [10_100, 'groups the latest 10,000'],
  'GET /health/doctor': [260_000, 'all counts together, at most once in ten seconds, and a sample of the figures'],
  'GET /dead-letters/stats': [80_000, 'counts up to 10,000 of each owner and state'],
  ...Object.fromEntries(
    [
      ...['overview', 'history', 'consumers', 'consumers/:name', 'search', 'events/:id/why', 'workflows/stats'],
      ...['workflows/:id/why', 'handlers'],
    ].map(path => [`GET /${path}`, counts]),
  ),
}

/** Routes that do not read the store, or follow it, or belong to stores with tenants. */
const others = /^GET \/(openapi\.json|live|tenants.*)$/

let store: Store
let server: StoreServer
const sent: Statement[] = []

beforeAll(async () => {
  const schema = freshSchema()
  const shared = await openDatabase()
  const database = recording(shared, statement => sent.push(statement))
  store = (await openStore({ ...largeShop(library), database, schema, migrate: true })) as unknown as Store
  await prepare(store)
  const named = (text: string): string => text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
  await fillStore(text => shared.transaction(tx => tx.query(named(text)), { timeoutMs: 120_000 }), events)
  server = await store.server({ port: 0, console: { access: 'read' } })
})

afterAll(async () => {
  await store?.close()
})

test('every route that reads has a request here', () => {
  const reads = routes.filter(({ key, method }) => method === 'GET' && !others.test(key)).map(({ key }) => key)
  const asked = new Set(requests(events).map(({ key }) => key))

  expect(reads.filter(key => !asked.has(key))).toEqual([])
})

for (const request of requests(events)) {
  const { key, note } = request
  test(`${key}${note === undefined ? '' : ` (${note})`} reads a bounded number of rows by their indexes`, async () => {
    const [most] = moreRows[note ?? key] ?? [maxRows]
    const { statements, rows, scanned } = await costOf(request)

    expect(scanned).toEqual([])
    expect(rows, statements.join(' ')).toBeLessThanOrEqual(most)
  })
}

async function costOf({
  path,
  body,
}: LargeRequest): Promise<{ statements: string[]; rows: number; scanned: string[] }> {
  sent.length = 0
  const response = await fetch(`${server.url}/api/v1${path}`, {
    ...(body === undefined
      ? {}
      : {
          method: 'POST',
          body: JSON.stringify(body),
          headers: { 'content-type': 'application/json', origin: server.url },
        }),
  })
  expect([response.status, response.ok ? '' : await response.text()]).toEqual([200, ''])
  await response.body?.cancel()
  const isOwn = (label: string): boolean =>
    /overview|history|stats|handlers|doctor|why/.test(path) || !sampled.includes(label)
  const asked = sent
    .filter(({ label }) => isOwn(label))
    .filter(({ text }) => /^\s*(\/\*.*?\*\/\s*)?(select|with)\b/i.test(text))
  const found = { statements: [] as string[], rows: 0, scanned: [] as string[] }
  for (const statement of asked) {
    const nodes = await nodesOf(statement)
    const onLarge = nodes.filter(node => large.includes(String(node['Relation Name'])))
    const rows = onLarge.reduce((sum, node) => sum + rowsOf(node), 0)
    found.rows += rows
    found.statements.push(`${statement.label} ${rows},`)
    for (const node of onLarge)
      if (node['Node Type'] === 'Seq Scan' && node['Relation Name'] !== mayBeScanned && rowsOf(node) > 0)
        found.scanned.push(`${statement.label}: ${node['Relation Name']} (${rowsOf(node)})`)
  }
  return found
}

interface PlanNode extends Readonly<Record<string, unknown>> {
  readonly Plans?: readonly PlanNode[]
}

function rowsOf(node: PlanNode): number {
  const of = (name: string): number => Number(node[name] ?? 0)
  return (of('Actual Rows') + of('Rows Removed by Filter')) * of('Actual Loops')
}

/** What the database did for a statement, as a plan for any values. */
async function nodesOf({ text, values }: Statement): Promise<PlanNode[]> {
  const rows = await (await openDatabase()).transaction(async tx => {
    await tx.query('set local plan_cache_mode = force_generic_plan')
    await tx.query(`prepare looked as ${text}`)
    const given = values.map(value => (toText(value) === null ? 'null' : literal(toText(value)!))).join(', ')
    try {
      return await tx.query<{ 'QUERY PLAN': unknown }>(
        `explain (analyze, timing off, format json) execute looked${given === '' ? '' : `(${given})`}`,
      )
    } finally {
      await tx.query('deallocate looked')
    }
  })
  const plan = rows[0]!['QUERY PLAN']
  const [{ Plan: root }] = (typeof plan === 'string' ? JSON.parse(plan) : plan) as [{ Plan: PlanNode }]
  const walk = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(walk)]
  return walk(root)
}
