import { beforeAll, expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { eq } from '../../src/documents/query/condition.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { roleStatements } from '../../src/schema/roles.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { onServer, outcome, placed, type ShopMap, shopEvents } from '../support/shop.ts'

const events = shopEvents
const definitions = {
  events,
  aggregates: [defineAggregate('order', { events, initial: () => 0, evolve: { OrderPlaced: n => n + 1 } })],
  projections: [
    defineDocumentProjection('orders', { events, initial: () => ({ n: 0 }), evolve: { OrderPlaced: o => o } }),
    defineDocumentProjection('inline-orders', {
      ...{
        events,
        lifecycle: 'inline' as const,
        initial: () => ({ n: 0 }),
        evolve: { OrderPlaced: (o: { n: number }) => o },
      },
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

const schema = freshSchema()
const roles = { owner: `${schema}_o`, writer: `${schema}_w`, reader: `${schema}_r` }
let urls: Record<keyof typeof roles, string>

beforeAll(async () => {
  if (!onServer) return
  const database = await openDatabase()
  await database.transaction(async tx => {
    // Twice: running them again changes nothing.
    for (const statement of [...roleStatements(schema, roles), ...roleStatements(schema, roles)])
      await tx.query(statement)
    for (const role of Object.values(roles)) await tx.query(`alter role "${role}" login password 'shop'`)
  })
  const urlOf = (role: string): string => {
    const url = new URL(postgresUrl())
    url.username = role
    url.password = 'shop'
    return url.href
  }
  urls = { owner: urlOf(roles.owner), writer: urlOf(roles.writer), reader: urlOf(roles.reader) }
  return async () => {
    await database.transaction(async tx => {
      await tx.query(`drop schema "${schema}" cascade`)
      for (const role of Object.values(roles)) await tx.query(`drop owned by "${role}" cascade`)
      for (const role of Object.values(roles)) await tx.query(`drop role "${role}"`)
    })
  }
})

let made = 0

type Calls = Record<string, (store: Store<ShopMap>) => unknown>

const writes: Calls = {
  'events.append': store => store.events.append('order-1', placed()),
  'events.append of another type': store =>
    store.events.append('order-2', { type: 'OrderPaid', data: { method: 'card' } }),
  'events.import': store => store.events.import([{ stream: 'old-1', type: 'OrderShipped', data: { parcel: 'p' } }]),
  'streams.resolve': store => store.streams.resolve(`order ${++made}`, { category: 'order' }),
  'streams.archive': store => store.streams.archive('order-2'),
  'streams.restore': store => store.streams.restore('order-2'),
  'documents.put': store => store.documents('customers').put('ada', { name: 'Ada' }),
  'documents.patch': store => store.documents('customers').patch('ada', { name: 'Ada L.' }),
  'documents.softDelete': store => store.documents('customers').softDelete('ada'),
  handle: store => store.decide(definitions.aggregates[0]!, 'order-3', () => placed()),
  'session.save': async store => {
    await using session = store.session()
    session.events.append('order-4', placed())
    await session.save()
  },
  'workflows.publish': store => store.workflows.publish('OrderPlaced', { total: 1 }),
  'workflows.cancel': async store => (await store.workflows.publish('OrderPlaced', { total: 1 })).cancel(),
  'handlers.pause': store => store.workflows.handlers.pause('charge'),
  'handlers.resume': store => store.workflows.handlers.resume('charge'),
  'schedules.pause': store => store.workflows.schedules.pause('nightly'),
  'schedules.resume': store => store.workflows.schedules.resume('nightly'),
  'consumers.runUntilIdle': store => store.consumers.runUntilIdle(),
  'consumers.pause': store => store.consumers.pause('orders'),
  'consumers.resume': store => store.consumers.resume('orders'),
  'consumers.reset': store => store.consumers.reset('mailer', 0),
  'deadLetters.retryAll': store => store.deadLetters.retryAll({ of: 'broken' }),
  'subscriptions.setMaxInFlight': store => store.subscriptions.setMaxInFlight('mailer', 5),
  upkeep: store => store.upkeep(),
  'audit.record': store => store.audit.record({ action: 'test.call' }, async () => {}),
}

const reads: Calls = {
  'events.read': store => store.events.read('order-1').toArray(),
  'events.readAll': async store => {
    for await (const _ of store.events.readAll()) break
  },
  'events.head': store => store.events.head(),
  'events.settled': store => store.events.settled(),
  'streams.list': store => store.streams.list(),
  'streams.describe': store => store.streams.describe('order-1'),
  'documents.get': store => store.documents('customers').get('ada'),
  'documents.query': store =>
    store
      .documents<{ name: string }>('customers')
      .query()
      .where(c => eq(c.name, 'Ada'))
      .toArray(),
  'documents of a projection': store => store.documents(definitions.projections[0]!).get('order-1'),
  'aggregates.load': store => store.aggregates(definitions.aggregates[0]!).load('order-1'),
  'consumers.list': store => store.consumers.list(),
  'consumers.status': store => store.consumers.status('orders'),
  'deadLetters.list': store => store.deadLetters.list(),
  'deadLetters.stats': store => store.deadLetters.stats(),
  'subscriptions.groups': store => store.subscriptions.groups('mailer'),
  'workflows.list': store => store.workflows.list(),
  'workflows.stats': store => store.workflows.stats(),
  'workflows.attempts': store => store.workflows.attempts(),
  'handlers.list': store => store.workflows.handlers.list(),
  'lanes.list': store => store.workflows.lanes.list(),
  'schedules.list': store => store.workflows.schedules.list(),
  'runners.list': store => store.runners.list(),
  'audit.list': store => store.audit.list(),
  'schema.check': store => store.schema.check(),
  'schema.plan': store => store.schema.plan(),
  doctor: store => store.doctor(),
  'upkeep, dry': store => store.upkeep({ dryRun: true }),
}

/** The calls that change the structure of the schema. */
const structural: Calls = {
  'schema.sync with a new collection': async store => {
    store.documents(`suppliers${++made}`)
    await store.schema.sync()
  },
  'projections.rebuild': store => store.projections.rebuild('orders'),
}

async function refusedCalls(store: Store<ShopMap>, calls: Calls): Promise<Record<string, unknown>> {
  const refused: Record<string, unknown> = {}
  for (const [name, call] of Object.entries(calls)) {
    const { error } = await outcome((async () => call(store))())
    if (error !== undefined) refused[name] = (error as { code?: string }).code ?? error
  }
  return refused
}

test.runIf(onServer)(
  'an owner can do everything, a writer all but change the structure, a reader only read',
  async () => {
    const owner = await openStore({ ...definitions, url: urls.owner, schema, migrate: true, logger: false })
    owner.documents('customers')
    await owner.schema.sync()
    const writer = await openStore({ ...definitions, url: urls.writer, schema, logger: false })
    const all = { ...writes, ...reads }

    expect(await refusedCalls(owner, { ...all, ...structural })).toEqual({})
    expect(await refusedCalls(writer, all)).toEqual({})
    const runner = await writer.start()
    await runner.stop()
    expect(Object.values(await refusedCalls(writer, structural))).toEqual(
      Object.keys(structural).map(() => 'permission_denied'),
    )

    const reader = await openStore({ ...definitions, url: urls.reader, schema, register: false, logger: false })
    expect(await refusedCalls(reader, reads)).toEqual({})
    const refused = await refusedCalls(reader, { ...writes, ...structural })
    expect(Object.keys(refused)).toEqual(Object.keys({ ...writes, ...structural }))
    expect([...new Set(Object.values(refused))]).toEqual(['permission_denied'])
    await Promise.all([owner, writer, reader].map(store => store.close()))
  },
)
