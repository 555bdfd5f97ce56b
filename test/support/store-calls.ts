/**
 * Every call of a store, and what it needs: for tests that must not leave one out. `surfaceOf` finds the calls that there are,
 * and a test compares them with these.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { eq } from '../../src/documents/query/condition.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { SessionDocuments } from '../../src/sessions/documents.ts'
import type { Store, StoreOptions } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { paid, placed, type ShopMap, shopEvents } from './shop.ts'

const events = shopEvents
const order = defineAggregate('order', {
  events,
  initial: () => 0,
  evolve: { OrderPlaced: n => n + 1 },
  snapshots: { every: 100, lifecycle: 'async' },
})
const orders = defineDocumentProjection('orders', {
  events,
  initial: () => ({ n: 0 }),
  evolve: { OrderPlaced: o => o },
})

/** What the calls are about. */
export const callDefinitions = {
  events,
  aggregates: [order],
  projections: [
    orders,
    defineDocumentProjection('inline-orders', {
      events,
      lifecycle: 'inline' as const,
      initial: () => ({ n: 0 }),
      evolve: { OrderPlaced: (o: { n: number }) => o },
    }),
  ],
  processors: [
    defineProcessor('broken', {
      events,
      onFailure: 'deadLetter',
      retries: 0,
      on: {
        OrderPaid: () => {
          throw new Error('no paper')
        },
      },
    }),
  ],
  subscriptions: [defineSubscription('mailer', { events, run: () => {} })],
  handlers: [defineHandler('charge', { events, on: 'OrderPlaced', run: () => undefined })],
  schedules: [defineSchedule('nightly', { events, cron: '0 3 * * *', run: () => undefined })],
} satisfies StoreOptions<ShopMap>

/**
 * `read`: a reader may make it. `write`: a program. `operator`: an operator, and it is recorded in the audit. `structure, recorded`: only
 * the owner of the schema, and it is recorded, too. `recorded`: in the audit, and not tried with each role. `process`: it starts, ends or opens something in this
 * process, and needs no right of its own.
 */
export type CallKind = 'read' | 'write' | 'operator' | 'structure, recorded' | 'recorded' | 'process'

export interface StoreCall {
  readonly kind: CallKind
  run(store: Store<ShopMap>): unknown
}

interface Customer {
  name: string
}

const customersOf = (store: Store<ShopMap>) => store.documents<Customer>('customers')
const unknownId = '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'
let made = 0
const fresh = (what: string): string => `${what}-${++made}`

async function withCustomer(store: Store<ShopMap>, work: (id: string) => unknown): Promise<void> {
  const id = fresh('c')
  await customersOf(store).put(id, { name: 'Ada' })
  await work(id)
}

async function inFolder(work: (folder: string) => unknown): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-calls-'))
  try {
    await work(join(folder, 'out'))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function firstOf(items: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of items) return
}

async function inSession(
  store: Store<ShopMap>,
  work: (session: ReturnType<Store<ShopMap>['session']>) => unknown,
): Promise<void> {
  await using session = store.session()
  await work(session)
  await session.save()
}

type Run = StoreCall['run']

const read: Record<string, Run> = {
  'events.read': s => s.events.read('order-1').toArray(),
  'events.readAll': s => firstOf(s.events.readAll()),
  'events.list': s => s.events.list(),
  'events.positionAt': s => s.events.positionAt(new Date()),
  'events.tail': s => firstOf(s.events.tail({ from: 'start' })),
  'events.get': s => s.events.get(unknownId),
  'events.stored': s => s.events.stored(unknownId),
  'events.types': s => s.events.types(),
  'events.has': s => s.events.has(unknownId),
  'events.head': s => s.events.head(),
  'events.settled': s => s.events.settled(),
  'events.waitFor': s => s.events.waitFor(1),
  'streams.list': s => s.streams.list(),
  'streams.describe': s => s.streams.describe('order-1'),
  'streams.categories': s => s.streams.categories(),
  'streams.find': s => s.streams.find('an alias'),
  'documents.list': s => s.documents.list(),
  'documents().get': s => customersOf(s).get('ada'),
  'documents().getMany': s => customersOf(s).getMany(['ada']),
  'documents().exists': s => customersOf(s).exists('ada'),
  'documents().count': s => customersOf(s).count(),
  'documents().query': s => customersOf(s).query().toArray(),
  'documents().where': s =>
    customersOf(s)
      .where(c => eq(c.name, 'Ada'))
      .page(),
  'documents().history': s => s.documents('ledger', { history: true }).history('ada'),
  'documents().getAt': s => s.documents('ledger', { history: true }).getAt('ada', { at: new Date() }),
  'schema.plan': s => s.schema.plan(),
  'schema.check': s => s.schema.check(),
  'schema.state': s => s.schema.state(),
  'schema.ensure': s => s.schema.ensure('check'),
  'aggregates().load': s => s.aggregates(order).load('order-1'),
  'aggregates().fetchLatest': s => s.aggregates(order).fetchLatest('order-1'),
  'snapshots().metrics': s => s.snapshots(order).metrics(),
  'subscriptions.groups': s => s.subscriptions.groups('mailer'),
  'workflows.watch': async s => {
    const watching = s.workflows.watch({ signal: AbortSignal.abort() })
    await firstOf(watching).catch(() => {})
  },
  'workflows.list': s => s.workflows.list(),
  'workflows.attempts': s => s.workflows.attempts(),
  'workflows.stats': s => s.workflows.stats(),
  'workflows.workers': s => s.workflows.workers(),
  'workflows.handlers.list': s => s.workflows.handlers.list(),
  'workflows.executions.list': s => s.workflows.executions.list(),
  'workflows.lanes.list': s => s.workflows.lanes.list(),
  'workflows.schedules.list': s => s.workflows.schedules.list(),
  'workflows.schedules.next': s => s.workflows.schedules.next('nightly'),
  'workflows.schedules.history': s => s.workflows.schedules.history('nightly'),
  'workflows.get().watch': s => firstOf(s.workflows.get('w').watch({ signal: AbortSignal.abort() })).catch(() => {}),
  'workflows.get().tree': s => s.workflows.get('w').tree(),
  'workflows.get().mermaid': s => s.workflows.get('w').mermaid(),
  'workflows.get().activity': s => s.workflows.get('w').activity(),
  'workflows.get().steps': s => s.workflows.get('w').steps(),
  'workflows.get().waits': s => s.workflows.get('w').waits(),
  'workflows.get().joins': s => s.workflows.get('w').joins(),
  'workflows.get().undos': s => s.workflows.get('w').undos(),
  'workflows.get().status': s => s.workflows.get('w').status(),
  'workflows.get().waitUntilSettled': s => ending(s.workflows.get('w').waitUntilSettled({ timeoutMs: 1 })),
  'workflows.get().waitForEvent': s => ending(s.workflows.get('w').waitForEvent('OrderPaid', { timeoutMs: 1 })),
  'runners.list': s => s.runners.list(),
  'consumers.list': s => s.consumers.list(),
  'consumers.status': s => s.consumers.status('orders'),
  'consumers.waitFor': s => s.consumers.waitFor('orders', 0),
  'deadLetters.list': s => s.deadLetters.list(),
  'deadLetters.groups': s => s.deadLetters.groups(),
  'deadLetters.stats': s => s.deadLetters.stats(),
  'deadLetters.show': s => ending(s.deadLetters.show('broken', unknownId)),
  'audit.list': s => s.audit.list(),
  'states.at': s => s.states.at('order', 'order-1'),
  'states.steps': s => s.states.steps('order', 'order-1', { from: 1, to: 1 }),
  'states.blame': s => s.states.blame('order', 'order-1'),
  explain: s => s.explain(unknownId),
  transaction: s => s.transaction(tx => tx.query('select 1')),
  export: s => inFolder(output => s.export({ output })),
  'consumers.describe': s => ending(s.consumers.describe('orders')),
  'projections.rows': s => ending(s.projections.rows('orders')),
  'states.snapshots': s => s.states.snapshots('order-1'),
  'workflows.activity': s => s.workflows.activity(),
  checkDeployment: s => s.checkDeployment(),
  doctor: s => s.doctor(),
  trace: s => s.trace(() => s.events.head()),
}

const write: Record<string, Run> = {
  'events.append': s => s.events.append('order-1', placed()),
  'events.appendMany': s => s.events.appendMany([{ stream: fresh('order'), events: [placed()] }]),
  'events.builder': s => s.events.builder(fresh('order')).push(placed()).send(),
  'events.import': s => s.events.import([{ stream: fresh('old'), type: 'OrderShipped', data: { parcel: 'p' } }]),
  'streams.resolve': s => s.streams.resolve(fresh('an alias'), { category: 'order' }),
  'documents().insert': s => customersOf(s).insert({ name: 'Ada' }),
  'documents().put': s => customersOf(s).put('ada', { name: 'Ada' }),
  'documents().update': s => withCustomer(s, id => customersOf(s).update(id, c => c)),
  'documents().patch': s => withCustomer(s, id => customersOf(s).patch(id, { name: 'A' })),
  'documents().patchMany': s => customersOf(s).patchMany(c => eq(c.name, 'Ada'), { name: 'Ada' }),
  'documents().merge': s => withCustomer(s, id => customersOf(s).merge(id, { name: 'A' })),
  'documents().delete': s => withCustomer(s, id => customersOf(s).delete(id)),
  'documents().softDelete': s => withCustomer(s, id => customersOf(s).softDelete(id)),
  'documents().restore': s =>
    withCustomer(s, async id => {
      await customersOf(s).softDelete(id)
      await customersOf(s).restore(id)
    }),
  'documents().putMany': s => customersOf(s).putMany([{ id: fresh('c'), data: { name: 'Ada' } }]),
  'documents().updateMany': s =>
    withCustomer(s, id => customersOf(s).updateMany([{ id, data: { name: 'B' } }] as never)),
  'documents().deleteMany': s => withCustomer(s, id => customersOf(s).deleteMany([id])),
  'documents().importMany': s => customersOf(s).importMany([{ id: fresh('c'), data: { name: 'Ada' } }]),
  'documents().batch': async s => {
    const batch = customersOf(s).batch()
    batch.put(fresh('c'), { name: 'Ada' })
    await batch.flush()
  },
  'aggregates().commit': s => s.aggregates(order).commit(fresh('order'), [placed()] as never),
  'aggregates().handle': s => ending(s.decide(order, fresh('order'), () => placed())),
  'snapshots().runOnce': s => s.snapshots(order).runOnce(),
  'snapshots().runUntilIdle': s => s.snapshots(order).runUntilIdle(),
  handle: s => s.decide(order, fresh('order'), () => placed()),
  decide: s => s.decide(order, fresh('order'), () => placed()),
  'session().save': s => inSession(s, session => session.events.append(fresh('order'), placed())),
  'session().events.append': s => inSession(s, session => session.events.append(fresh('order'), placed())),
  'session().publish': s => inSession(s, session => session.publish('OrderPlaced', { total: 1 })),
  'session().fetchForWriting': s =>
    inSession(s, async session => (await session.fetchForWriting(order, fresh('order'))).append([placed()] as never)),
  'session().load': s =>
    inSession(s, session =>
      session.load(customersOf(s) as never, 'ada').then(() => session.events.append(fresh('order'), placed())),
    ),
  'session().documents().load': s =>
    inSession(s, async session => {
      await session.documents(customersOf(s)).load('ada')
      session.events.append(fresh('order'), placed())
    }),
  'session().documents().insert': s =>
    inSession(s, session => session.documents(customersOf(s)).insert(fresh('c'), { name: 'A' })),
  'session().documents().put': s =>
    inSession(s, session =>
      session.documents(customersOf(s)).put(fresh('c'), { name: 'A' }, { upsert: true } as never),
    ),
  'session().documents().update': s => stagedOn(s, (documents, id) => documents.update(id, (c: Customer) => c)),
  'session().documents().patch': s => stagedOn(s, (documents, id) => documents.patch(id, { name: 'P' })),
  'session().documents().delete': s => stagedOn(s, (documents, id) => documents.delete(id)),
  'session().documents().softDelete': s => stagedOn(s, (documents, id) => documents.softDelete(id)),
  'session().documents().restore': s =>
    withCustomer(s, async id => {
      await customersOf(s).softDelete(id)
      await inSession(s, async session => {
        const documents = session.documents(customersOf(s)) as never as Record<
          string,
          (id: string, o?: object) => unknown
        >
        await documents.load!(id, { includeDeleted: true })
        await documents.restore!(id)
      }).catch(ignoreUnless)
    }),
  'workflows.publish': s => s.workflows.publish('OrderPlaced', { total: 1 }),
  'workflows.get().signal': s => s.workflows.get('w').signal('OrderPaid', { method: 'card' }),
  'consumers.runOnce': s => s.consumers.runOnce('broken'),
  'consumers.runUntilIdle': s => s.consumers.runUntilIdle(),
  'consumers.run': s => s.consumers.run('broken', { signal: AbortSignal.timeout(300) } as never).catch(ignoreUnless),
  'audit.record': s => s.audit.record({ action: 'test.call' }, async () => {}),
  'audit.withActor': s => s.audit.withActor('ada', () => s.audit.record({ action: 'test.call' }, async () => {})),
}

const operator: Record<string, Run> = {
  'streams.archive': s => s.streams.archive('order-1'),
  'streams.restore': s => s.streams.restore('order-1'),
  'streams.tombstone': async s => {
    const stream = fresh('order')
    await s.events.append(stream, placed())
    await s.streams.tombstone(stream)
  },
  'subscriptions.create': s => s.subscriptions.create(fresh('courier'), {}),
  'subscriptions.setMaxInFlight': s => s.subscriptions.setMaxInFlight('mailer', 5),
  'subscriptions.repartition': s => s.subscriptions.repartition('mailer', 2),
  'workflows.get().cancel': s => s.workflows.get('w').cancel(),
  'workflows.cancelAll': s => s.workflows.cancelAll({ parent: 'w' }),
  'workflows.handlers.pause': s => s.workflows.handlers.pause('charge'),
  'workflows.handlers.resume': s => s.workflows.handlers.resume('charge'),
  'workflows.handlers.retire': s => ending(s.workflows.handlers.retire('no-such-handler')),
  'workflows.executions.resume': s => ending(s.workflows.executions.resume(unknownId)),
  'workflows.executions.reject': s => ending(s.workflows.executions.reject(unknownId)),
  'workflows.lanes.unpark': s => ending(s.workflows.lanes.unpark('charge')),
  'workflows.schedules.pause': s => s.workflows.schedules.pause('nightly'),
  'workflows.schedules.resume': s => s.workflows.schedules.resume('nightly'),
  'workflows.schedules.trigger': s => s.workflows.schedules.trigger('nightly'),
  'workflows.schedules.delete': s => ending(s.workflows.schedules.delete('no-such-schedule')),
  'runners.pause': s => ending(s.runners.pause('no-such-runner')),
  'runners.resume': s => ending(s.runners.resume('no-such-runner')),
  'workflows.executions.run': s => ending(s.workflows.executions.run(unknownId)),
  'runners.promote': s => ending(s.runners.promote('no-such-runner')),
  'runners.demote': s => ending(s.runners.demote('no-such-runner')),
  'consumers.pause': s => s.consumers.pause('orders'),
  'consumers.resume': s => s.consumers.resume('orders'),
  'consumers.reset': s => s.consumers.reset('broken', 0),
  'consumers.remove': s => ending(s.consumers.remove('no-such-consumer')),
  'deadLetters.retry': async s => {
    await s.events.append('order-7', paid)
    await s.consumers.runUntilIdle('broken')
    const [letter] = (await s.deadLetters.list()).items
    await s.deadLetters.retry('broken', letter!.eventId)
  },
  'deadLetters.retryAll': s => s.deadLetters.retryAll({ of: 'broken' }),
  'deadLetters.resolve': s => ending(s.deadLetters.resolve('broken', unknownId, { note: 'n' })),
  'deadLetters.resolveAll': s => s.deadLetters.resolveAll({ of: 'broken' }, { note: 'n' }),
  'deadLetters.delete': s => ending(s.deadLetters.delete('broken', unknownId)),
  'projections.switch': s => ending(s.projections.switch('orders')),
  upkeep: s => s.upkeep(),
}

const recordedStructure: Record<string, Run> = {
  'schema.sync': async s => {
    s.documents(fresh('vendors').replace('-', '_'))
    await s.schema.sync()
  },
  'projections.rebuild': s => s.projections.rebuild('orders'),
}

const recorded: Record<string, Run> = {
  'projections.rehearse': s => ending(s.projections.rehearse('orders')),
  import: s =>
    inFolder(async output => {
      await s.export({ output })
      // It is not empty.
      await ending(s.import({ input: output }))
    }),
}

/** What each of them is for, where it needs no right of its own. */
const inProcess: Record<string, string> = {
  documents: 'opens a collection',
  rows: 'opens the rows of a projection',
  newId: 'makes an id',
  register: 'stores definitions, as opening a store does',
  'projections.register': 'the same',
  'workflows.register': 'the same',
  'workflows.sync': 'the same',
  'workflows.get': 'opens a workflow',
  'workflows.handlers.registered': 'lists definitions',
  'runners.registered': 'lists definitions',
  'states.list': 'lists definitions',
  aggregates: 'opens a repository',
  snapshots: 'opens a snapshotter',
  'snapshots().unregister': 'forgets a definition',
  session: 'opens a session',
  'session().documents': 'opens a collection',
  'session().discard': 'forgets what is staged',
  subscribe: 'runs as `start` does',
  start: 'runs what is registered, and is tried by itself',
  'schema.drop': 'ends the store, with its audit',
  backup: 'copies files of an embedded store',
  metrics: 'counts in memory',
  server: 'listens',
  http: 'listens',
  close: 'ends',
  'audit.recordDone': 'belongs to the library',
  'audit.recordFailed': 'belongs to the library',
  'documents().ready': 'makes its tables, as `schema.sync` does, where the store may',
  'documents().adviseIndexes': 'looks at queries of this process',
}

function entriesOf(kind: CallKind, calls: Record<string, Run>): [string, StoreCall][] {
  return Object.entries(calls).map(([path, run]) => [path, { kind, run }])
}

export const storeCalls: ReadonlyMap<string, StoreCall> = new Map([
  ...entriesOf('read', read),
  ...entriesOf('write', write),
  ...entriesOf('operator', operator),
  ...entriesOf('structure, recorded', recordedStructure),
  ...entriesOf('recorded', recorded),
  ...Object.keys(inProcess).map(path => [path, { kind: 'process', run: () => {} }] as [string, StoreCall]),
])

/** The paths of all calls that a store has, and those of what it opens. */
export function surfaceOf(store: Store<ShopMap>): string[] {
  const session = store.session()
  const customers = customersOf(store)
  return [
    ...callsOf(store, ''),
    ...Object.keys(store.documents).map(name => `documents.${name}`),
    ...callsOf(customers, 'documents().'),
    ...callsOf(store.aggregates(order), 'aggregates().'),
    ...callsOf(store.snapshots(order), 'snapshots().'),
    ...callsOf(store.workflows.get('w'), 'workflows.get().'),
    ...callsOf(session, 'session().'),
    ...callsOf(session.documents(customers), 'session().documents().'),
  ].sort()
}

function callsOf(api: object, path: string, depth = 0): string[] {
  return Object.entries(api).flatMap(([name, value]) => {
    if (typeof value === 'function') return [path + name]
    return typeof value === 'object' && value !== null && depth < 2 ? callsOf(value, `${path}${name}.`, depth + 1) : []
  })
}

async function stagedOn(
  store: Store<ShopMap>,
  work: (documents: SessionDocuments<Customer>, id: string) => unknown,
): Promise<void> {
  await withCustomer(store, id =>
    inSession(store, async session => {
      const documents = session.documents(customersOf(store))
      await documents.load(id)
      await work(documents, id)
    }),
  )
}

/** For a call about something that is not there: all that matters is that it is not refused for want of a right. */
async function ending(call: Promise<unknown>): Promise<void> {
  await call.catch(ignoreUnless)
}

function ignoreUnless(error: unknown): void {
  if ((error as { code?: unknown }).code === 'permission_denied') throw error
}
