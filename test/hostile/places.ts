/** The places where text of a caller enters the store: each is a call with one text in one place of it. */
import { defineCollection } from '../../src/documents/collection.ts'
import * as conditions from '../../src/documents/query/condition.ts'
import { at, lower } from '../../src/documents/query/field.ts'
import { filterFrom } from '../../src/documents/query/filter.ts'
import { append, increment, set, unset } from '../../src/patch.ts'
import type { Store } from '../../src/store.ts'

/** What a place gives back, if it stores text and reads it again. */
export type Place = (text: string, store: Store) => unknown

const eventId = '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'
const placed = { type: 'OrderPlaced', data: {} }
const customers = (store: Store) => store.documents<Record<string, unknown>>('customers')
const first = async (events: AsyncIterable<unknown>): Promise<unknown> => {
  for await (const event of events) return event
  return undefined
}

const events: Record<string, Place> = {
  'a stream': (s, store) => store.events.append(s, placed),
  'a type': (s, store) => store.events.append('order-1', { type: s, data: {} }),
  'a value in data': (s, store) => store.events.append('order-1', { type: 'A', data: { s } }),
  'a key in data': (s, store) => store.events.append('order-1', { type: 'A', data: { [s]: 1 } }),
  'data itself': (s, store) => store.events.append('order-1', { type: 'A', data: s }),
  'a value in headers': (s, store) => store.events.append('order-1', { ...placed, headers: { s } }),
  'a key in headers': (s, store) => store.events.append('order-1', { ...placed, headers: { [s]: 'x' } }),
  'an event id': (s, store) => store.events.append('order-1', { ...placed, id: s } as never),
  'an idempotency key': (s, store) => store.events.append('order-2', placed, { idempotencyKey: s }),
  'a correlation id': (s, store) => store.events.append('order-1', placed, { correlationId: s }),
  'a causation id': (s, store) => store.events.append('order-1', placed, { causationId: s }),
  'a user id': (s, store) => store.events.append('order-1', placed, { userId: s }),
  'an expected version': (s, store) => store.events.append('order-1', placed, { expected: s as never }),
  'streams of appendMany': (s, store) => store.events.appendMany([{ stream: s, events: [placed] }]),
  'a stream to read': (s, store) => store.events.read(s).toArray(),
  'an event to get': (s, store) => store.events.get(s),
  'an event to look for': (s, store) => store.events.has(s),
  'types to read': (s, store) => store.events.readAll({ types: [s] }).toArray(),
  'streams to read': (s, store) => store.events.readAll({ streams: [s] }).toArray(),
  'categories to read': (s, store) => store.events.readAll({ categories: [s] }).toArray(),
  'a correlation to read': (s, store) => store.events.readAll({ correlationId: s }).toArray(),
  'a beginning': (s, store) => store.events.readAll({ from: s as never }).toArray(),
  'a type to follow': (s, store) => first(store.events.tail({ types: [s], signal: AbortSignal.timeout(20) })),
  'an imported stream': (s, store) => store.events.import([{ stream: s, type: 'A', data: {} }]),
  'an imported type': (s, store) => store.events.import([{ stream: 'old-1', type: s, data: {} }]),
  'imported data': (s, store) => store.events.import([{ stream: 'old-1', type: 'A', data: { [s]: s } }]),
  'an imported id': (s, store) => store.events.import([{ stream: 'old-1', type: 'A', data: {}, id: s }]),
  'the name of an import': (s, store) => store.events.import([{ stream: 'old-2', type: 'A', data: {} }], { name: s }),
  'an imported user id': (s, store) => store.events.import([{ stream: 'old-1', type: 'A', data: {}, userId: s }]),
  'a category of a new id': (s, store) => store.newId(s),
  'a stream of a builder': (s, store) => store.events.builder(s).push(placed).send(),
}

const streams: Record<string, Place> = {
  'a stream to describe': (s, store) => store.streams.describe(s),
  'a category to list': (s, store) => store.streams.list({ category: s }),
  'a state to list': (s, store) => store.streams.list({ state: s as never }),
  'a cursor of streams': (s, store) => store.streams.list({ after: s }),
  'an alias': (s, store) => store.streams.resolve(s),
  'the category of an alias': (s, store) => store.streams.resolve('the first', { category: s }),
  'a stream to archive': (s, store) => store.streams.archive(s),
  'a reason to archive': (s, store) => store.streams.archive('order-9', { reason: s }),
  'a stream to restore': (s, store) => store.streams.restore(s),
  'a stream to tombstone': (s, store) => store.streams.tombstone(s),
  'a reason of a tombstone': (s, store) => store.streams.tombstone('order-8', { reason: s }),
}

const documents: Record<string, Place> = {
  'a collection': (s, store) => store.documents(s),
  'a definition of a collection': s => defineCollection(s),
  'an indexed path': (s, store) => store.documents('suppliers', { indexes: [s] }),
  'a searched path': (s, store) => store.documents('carriers', { search: [s] }),
  'a language': (s, store) => store.documents('texts', { search: ['notes'], language: s } as never),
  'an id to put': (s, store) => customers(store).put(s, { a: 1 }),
  'an id to insert': (s, store) => customers(store).insert(s, { a: 1 }),
  'a value to put': (s, store) => customers(store).put('ada', { s }),
  'a key to put': (s, store) => customers(store).put('ada', { [s]: 1 }),
  'a nested key to put': (s, store) => customers(store).put('ada', { a: [{ [s]: { [s]: s } }] }),
  'an id to get': (s, store) => customers(store).get(s),
  'ids to get': (s, store) => customers(store).getMany([s, 'ada']),
  'an id to look for': (s, store) => customers(store).exists(s),
  'an id to update': (s, store) => customers(store).update(s, data => data),
  'a value to update': (s, store) => customers(store).update('ada', data => ({ ...data, s })),
  'an id to merge': (s, store) => customers(store).merge(s, { a: 1 }),
  'a key to merge': (s, store) => customers(store).merge('ada', { [s]: s }),
  'an id to patch': (s, store) => customers(store).patch(s, { a: 1 }),
  'a path to patch': (s, store) => customers(store).patch('ada', { [s]: 1 }),
  'a nested path to patch': (s, store) => customers(store).patch('ada', { [`a.${s}`]: 1 }),
  'a value to patch': (s, store) => customers(store).patch('ada', { b: s }),
  'a path to set': (s, store) => customers(store).patch('ada', { [s]: set(s) }),
  'a path to unset': (s, store) => customers(store).patch('ada', { [s]: unset() }),
  'a path to increment': (s, store) => customers(store).patch('ada', { [s]: increment(1) }),
  'a value to append': (s, store) => customers(store).patch('ada', { list: append(s) }),
  'a path of patchMany': (s, store) => customers(store).patchMany(() => conditions.eq('x' as never, 'y'), { [s]: 1 }),
  'an id to delete': (s, store) => customers(store).delete(s),
  'an id to soft-delete': (s, store) => customers(store).softDelete(s),
  'an id to restore': (s, store) => customers(store).restore(s),
  'ids to put': (s, store) => customers(store).putMany([{ id: s, data: { s } }]),
  'ids to delete': (s, store) => customers(store).deleteMany([s]),
  'ids to import': (s, store) => customers(store).importMany([{ id: s, data: { [s]: s } }]),
  'an id with a history': (s, store) => customers(store).history(s),
  'an id at a time': (s, store) => customers(store).getAt(s, { at: new Date() }),
  'a user of a document': (s, store) => customers(store).put('ada', { a: 1 }, { userId: s } as never),
}

type Where = (store: Store, make: (c: Record<string, never>) => unknown) => unknown
const found: Where = (store, make) =>
  customers(store)
    .where(make as never)
    .limit(3)
    .toArray()
const { eq, ne, gt, gte, lt, lte, like, regex, startsWith, contains, isIn, between, exists, elemMatch } = conditions

const operators: Record<string, (field: never, s: never) => unknown> = {
  ...{ eq, ne, gt, gte, lt, lte, like, regex, startsWith, contains },
  isIn: (field, s) => isIn(field, [s, s]),
  between: (field, s) => between(field, s, s),
  'contains of an object': (field, s) => contains(field, { [s as string]: s } as never),
  'elemMatch of': (field, s) => elemMatch(field, each => eq(each as never, s)),
}

const queries: Record<string, Place> = {
  ...Object.fromEntries(
    Object.entries(operators).flatMap(([name, make]): [string, Place][] => [
      [`an operand of ${name}`, (s, store) => found(store, c => make(c.name as never, s as never))],
      [`a field of ${name}`, (s, store) => found(store, c => make(at(c as never, s as never) as never, 'x' as never))],
    ]),
  ),
  'a field of exists': (s, store) => found(store, c => exists(at(c as never, s as never) as never)),
  'a lowered operand': (s, store) => found(store, c => eq(lower(c.name as never) as never, s as never)),
  'search words': (s, store) => found(store, c => conditions.search(c.name as never, s)),
  'a key of a filter': (s, store) => found(store, () => filterFrom({ [s]: 'x' })),
  'an operator of a filter': (s, store) => found(store, () => filterFrom({ name: { [s]: 'x' } })),
  'a value of a filter': (s, store) => found(store, () => filterFrom({ name: s })),
  'a pattern of a filter': (s, store) => found(store, () => filterFrom({ name: { $like: s } })),
  'a field to sort by': (s, store) =>
    customers(store)
      .query()
      .orderBy(c => at(c as never, s as never) as never)
      .limit(2)
      .toArray(),
  'a direction to sort in': (s, store) =>
    customers(store)
      .query()
      .orderBy(c => c.name as never, s as never)
      .limit(2)
      .toArray(),
  'a selected field': (s, store) =>
    customers(store)
      .query()
      .select({ x: c => at(c as never, s as never) as never })
      .limit(2)
      .toArray(),
  'a selected name': (s, store) =>
    customers(store)
      .query()
      .select({ [s]: c => c.name as never })
      .limit(2)
      .toArray(),
  'an included name': (s, store) =>
    customers(store)
      .query()
      .include(s, customers(store), { from: c => c.name as never })
      .limit(2)
      .toArray(),
  'a grouped name': (s, store) =>
    customers(store)
      .query()
      .groupBy({ [s]: (c: Record<string, never>) => c.name } as never, () => ({}) as never)
      .toArray(),
  'a limit': (s, store) =>
    customers(store)
      .query()
      .limit(s as never)
      .toArray(),
}

const operating: Record<string, Place> = {
  'a consumer to look at': (s, store) => store.consumers.status(s),
  'a group to look at': (s, store) => store.consumers.status('mailer', { group: s }),
  'a consumer to pause': (s, store) => store.consumers.pause(s),
  'a group to pause': (s, store) => store.consumers.pause('mailer', { group: s }),
  'a consumer to resume': (s, store) => store.consumers.resume(s),
  'a consumer to reset': (s, store) => store.consumers.reset(s, 0),
  'a position to reset to': (s, store) => store.consumers.reset('orders', s as never),
  'a consumer to remove': (s, store) => store.consumers.remove(s),
  'a consumer to wait for': (s, store) => store.consumers.waitFor(s, 0, { timeoutMs: 1 }),
  'a consumer to run': (s, store) => store.consumers.runOnce(s),
  'a kind of consumers': (s, store) => store.consumers.list({ kind: s as never }),
  'a cursor of consumers': (s, store) => store.consumers.list({ after: s }),
  'a projection to rebuild': (s, store) => store.projections.rebuild(s),
  'a projection to switch': (s, store) => store.projections.switch(s),
  'a subscription of groups': (s, store) => store.subscriptions.groups(s),
  'a subscription to limit': (s, store) => store.subscriptions.setMaxInFlight(s, 5),
  'a subscription to divide': (s, store) => store.subscriptions.repartition(s, 2),
  'a subscription to create': (s, store) => store.subscriptions.create(s, {} as never),
  'the owner of dead letters': (s, store) => store.deadLetters.list({ of: s }),
  'the handler of dead letters': (s, store) => store.deadLetters.list({ of: { handler: s } }),
  'the type of dead letters': (s, store) => store.deadLetters.list({ type: s }),
  'the stream of dead letters': (s, store) => store.deadLetters.list({ stream: s }),
  'the state of dead letters': (s, store) => store.deadLetters.list({ state: s as never }),
  'a cursor of dead letters': (s, store) => store.deadLetters.list({ after: s }),
  'a dead letter to show': (s, store) => store.deadLetters.show(s, eventId),
  'the event of a dead letter': (s, store) => store.deadLetters.show('orders', s),
  'a dead letter to retry': (s, store) => store.deadLetters.retry(s, eventId),
  'data to retry with': (s, store) => store.deadLetters.retry('charge', eventId, { data: { [s]: s } }),
  'dead letters to retry': (s, store) => store.deadLetters.retryAll({ of: s, type: s }),
  'a dead letter to resolve': (s, store) => store.deadLetters.resolve(s, eventId, { note: 'done' }),
  'a note': (s, store) => store.deadLetters.resolve('orders', eventId, { note: s }),
  'a dead letter to delete': (s, store) => store.deadLetters.delete(s, s),
  'a runner to promote': (s, store) => store.runners.promote(s),
  'a runner to demote': (s, store) => store.runners.demote(s),
  'a cursor of runners': (s, store) => store.runners.list({ after: s }),
  'an actor': (s, store) => store.audit.withActor(s, () => store.consumers.pause('orders')),
  'an actor to list': (s, store) => store.audit.list({ actor: s }),
  'an action to list': (s, store) => store.audit.list({ action: s }),
  'a target to list': (s, store) => store.audit.list({ target: s }),
  'an outcome to list': (s, store) => store.audit.list({ outcome: s as never }),
  'a cursor of the audit': (s, store) => store.audit.list({ after: s }),
  'an action to record': (s, store) => store.audit.record({ action: s, target: s }, async () => s),
  'parameters to record': (s, store) => store.audit.record({ action: 'a', parameters: { [s]: s } }, async () => s),
  'a query of your own': (s, store) => store.transaction(tx => tx.query('select $1::text as s', [s])),
  'values of your own': (s, store) => store.transaction(tx => tx.query('select $1::text[] as s', [[s]])),
}

const workflows: Record<string, Place> = {
  'a published type': (s, store) => store.workflows.publish(s, {}),
  'published data': (s, store) => store.workflows.publish('A', { [s]: s }),
  'a published stream': (s, store) => store.workflows.publish('A', {}, { stream: s }),
  'a key of a publish': (s, store) => store.workflows.publish('A', { s }, { idempotencyKey: s }),
  'the correlation of a publish': (s, store) => store.workflows.publish('A', {}, { correlationId: s }),
  'a workflow to get': (s, store) => store.workflows.get(s).status(),
  'a workflow to cancel': (s, store) => store.workflows.get(s).cancel(),
  'a reason to cancel': (s, store) => store.workflows.get('w-1').cancel({ reason: s }),
  'a workflow to draw': (s, store) => store.workflows.get(s).mermaid(),
  'a workflow to show': (s, store) => store.workflows.get(s).tree(),
  'a signal': (s, store) => store.workflows.get('w-1').signal(s, { s }),
  'an event to wait for': (s, store) => store.workflows.get('w-1').waitForEvent(s, { timeoutMs: 20 }),
  'a cursor of workflows': (s, store) => store.workflows.list({ after: s }),
  'a state of workflows': (s, store) => store.workflows.list({ state: s as never }),
  'a cursor of attempts': (s, store) => store.workflows.attempts({ after: s }),
  'a handler of attempts': (s, store) => store.workflows.attempts({ handler: s } as never),
  'a handler to pause': (s, store) => store.workflows.handlers.pause(s),
  'a handler to resume': (s, store) => store.workflows.handlers.resume(s),
  'a handler to retire': (s, store) => store.workflows.handlers.retire(s),
  'a cursor of handlers': (s, store) => store.workflows.handlers.list({ after: s }),
  'an execution to resume': (s, store) => store.workflows.executions.resume(s),
  'a handler of lanes': (s, store) => store.workflows.lanes.list({ handler: s } as never),
  'a lane to unpark': (s, store) => store.workflows.lanes.unpark(s),
  'the key of a lane': (s, store) => store.workflows.lanes.unpark('charge', { key: s }),
  'a schedule to pause': (s, store) => store.workflows.schedules.pause(s),
  'a schedule to resume': (s, store) => store.workflows.schedules.resume(s),
  'a schedule to trigger': (s, store) => store.workflows.schedules.trigger(s),
  'the history of a schedule': (s, store) => store.workflows.schedules.history(s),
  'a schedule to delete': (s, store) => store.workflows.schedules.delete(s),
}

const sessions: Record<string, Place> = {
  'a stream of a session': (s, store) => saved(store, session => session.events.append(s, placed)),
  'a type of a session': (s, store) =>
    saved(store, session => session.events.append('order-1', { type: s, data: { s } })),
  'an id of a session': (s, store) => saved(store, session => session.documents(customers(store)).put(s, { [s]: s })),
  'a key of a session': (s, store) =>
    saved(store, session => session.events.append('order-3', placed), { idempotencyKey: s }),
  'the user of a session': (s, store) =>
    saved(store, session => session.events.append('order-1', placed), {}, { userId: s }),
  'the headers of a session': (s, store) =>
    saved(store, session => session.events.append('order-1', placed), {}, { headers: { [s]: s } }),
}

async function saved(
  store: Store,
  work: (session: ReturnType<Store['session']>) => unknown,
  options: object = {},
  given: object = {},
): Promise<unknown> {
  await using session = store.session(given)
  await work(session)
  try {
    return await session.save(options)
  } finally {
    session.discard()
  }
}

export const places: Record<string, Place> = {
  ...events,
  ...streams,
  ...documents,
  ...queries,
  ...operating,
  ...workflows,
  ...sessions,
}
