import { expect, test } from 'vitest'
import { batch } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { EventNode, HandlerNode, TreeNode } from '../../src/workflows/insight/tree.ts'
import { mermaidOf } from '../../src/workflows/insight/tree.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** The tree as text: events with their effects in brackets. */
function words(nodes: readonly TreeNode[]): string {
  return nodes
    .map(node => {
      const name = node.kind === 'event' ? node.type : `${node.handler}:${node.state}`
      const inside = words(node.kind === 'event' ? [...node.handlers, ...node.events] : node.events)
      return inside === '' ? name : `${name} (${inside})`
    })
    .join(', ')
}

test('SB-21, SB-25: the tree of a workflow shows its events, the handlers they ran, and the events these emitted', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: { baseMs: 1 },
      run: (_, { attempt, emit }) => {
        if (attempt === 1) throw new Error('the bank is closed')
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(defineHandler('weigh', { events: shopEvents, on: 'OrderPlaced', when: () => false, run: () => {} }))
  flows.register(
    defineHandler('ship', {
      on: 'OrderPaid',
      retries: 0,
      run: () => {
        throw new Error('no van')
      },
    }),
  )
  flows.register(defineHandler('thank', { on: 'OrderPaid', delayMs: 86_400_000, run: () => {} }))
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPaid',
      inline: true,
      run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await flow.status()).deadLetters === 1 && (await flow.status()).pending === 1)

  const tree = await flow.tree()

  const [root] = tree.roots as [EventNode]
  const names = root.handlers.map(node => node.handler).sort()
  const pay = root.handlers.find(node => node.handler === 'pay')!
  const [paid] = pay.events
  const ship = paid!.handlers.find(node => node.handler === 'ship')!
  expect(tree).toMatchObject({ events: 3, executions: 5, isWhole: true, correlationId: flow.correlationId })
  expect(names).toEqual(['pay', 'weigh'])
  expect(pay).toMatchObject({ state: 'completed', attempts: 2, isDead: false, version: 1 })
  expect(ship).toMatchObject({ state: 'failed', isDead: true, error: { message: 'no van' }, events: [] })
  expect(words(paid!.handlers.toSorted(byName))).toBe('book:completed (OrderShipped), ship:failed, thank:delayed')
  expect(JSON.parse(JSON.stringify(tree)).roots[0].position).toBe(root.position)
})

test('a tree has the place of events in their batch, what handlers emitted, and the data of events if it is asked for', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('split', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => batch([emit('OrderPaid', { method: 'card' }), emit('OrderPaid', { method: 'cash' })]),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 7 })
  await flow.waitUntilSettled()

  const [whole] = (await flow.tree({ data: true })).roots as [EventNode]
  const [bare] = (await flow.tree()).roots as [EventNode]

  const { events, result } = whole.handlers[0]!
  expect(whole).toMatchObject({ data: { total: 7 }, batch: undefined })
  expect(events.map(({ data, batch: place }) => [data, place?.index, place?.size])).toEqual([
    [{ method: 'card' }, 0, 2],
    [{ method: 'cash' }, 1, 2],
  ])
  expect(result).toMatchObject({ emitted: 2, events: [{ type: 'OrderPaid' }, { type: 'OrderPaid' }] })
  expect(bare).toMatchObject({ type: 'OrderPlaced', data: undefined })
})

function byName(a: HandlerNode, b: HandlerNode): number {
  return a.handler < b.handler ? -1 : 1
}

test('an event with a cause outside of the workflow, or after itself, is a root; one published with a cause is its child', async () => {
  const { store } = await openShop()
  const ids = ['00000000-0000-4000-8000-00000000000a', '00000000-0000-4000-8000-00000000000b']
  const [a, b] = ids as [string, string]
  await store.events.append('order-1', placed(1, { id: a, causationId: b }), { correlationId: 'order-1' })
  await store.events.append('order-1', placed(2, { id: b, causationId: a }), { correlationId: 'order-1' })
  await store.events.append('order-1', placed(3, { causationId: 'elsewhere' }), { correlationId: 'order-1' })

  const { roots, events } = await store.workflows.get('order-1').tree()

  expect(events).toBe(3)
  expect(words(roots)).toBe('OrderPlaced (OrderPlaced), OrderPlaced')
  expect(roots.map(node => (node as EventNode).position)).toEqual([1, 3])
})

test('an execution whose event was deleted is a root', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()
  await query('delete from ~events')

  const { roots } = await flow.tree()

  expect(words(roots)).toBe('pay:completed')
})

test('a tree has at most the requested number of events, and marks a cut', async () => {
  const { store } = await openShop()
  const many = Array.from({ length: 30 }, (_, n) => placed(n))
  await store.events.append('order-1', many, { correlationId: 'order-1' })

  const part = await store.workflows.get('order-1').tree({ limit: 10 })
  const unknown = await store.workflows.get('order-2').tree()

  expect(part).toMatchObject({ events: 10, isWhole: false })
  expect(unknown).toMatchObject({ events: 0, executions: 0, roots: [], isWhole: true })
})

test('a chain of ten thousand events can be read and drawn as a tree', async () => {
  const { store } = await openShop()
  const id = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
  await store.events.import(
    Array.from({ length: 10_000 }, (_, n) => ({
      ...{ stream: 'order-1', ...placed(n), id: id(n), correlationId: 'order-1' },
      ...(n === 0 ? {} : { causationId: id(n - 1) }),
    })),
  )

  const tree = await store.workflows.get('order-1').tree({ limit: 100_000 })

  expect(tree).toMatchObject({ events: 10_000, isWhole: true })
  expect(tree.roots).toHaveLength(1)
  expect(mermaidOf(tree).split('\n').length).toBeGreaterThan(20_000)
})

test('a workflow can be drawn as a Mermaid flowchart, whatever its handlers are called', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay "now"] --> <b>#1;`', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  const text = await flow.mermaid()

  expect(text.split('\n').slice(0, 6)).toEqual([
    'flowchart TD',
    '  n1["OrderPlaced"]:::event',
    '  n2(["pay #34;now#34;#93; --#62; #60;b#62;#35;1#59;#96;: completed"]):::done',
    '  n1 --> n2',
    '  n3["OrderPaid"]:::event',
    '  n2 --> n3',
  ])
  expect(text).toBe(mermaidOf(await flow.tree()))
})
