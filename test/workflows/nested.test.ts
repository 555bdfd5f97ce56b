import { expect, test } from 'vitest'
import { batch, emit } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { JoinPolicy } from '../../src/workflows/joins/join.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import {
  checkEvents,
  expectNothingOpen,
  fanOut,
  joinsOf,
  type OrderChecks,
  openOrderChecks,
  settled,
} from './order-checks.ts'

const parts = ['left', 'right'] as const

interface Nested extends OrderChecks {
  readonly seen: string[]
}

/** Each item is checked part by part: a batch in each branch of a batch. */
async function openNested({
  broken = () => false,
  inner = 'all',
  outer = 'all',
}: {
  broken?: (item: string, part: string) => boolean
  inner?: JoinPolicy
  outer?: JoinPolicy
}): Promise<Nested> {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  fanOut(flows)
  flows.register(
    defineHandler('take-apart', {
      events: checkEvents,
      on: 'CheckAsked',
      run: ({ data: { item } }, { emit }) => batch(parts.map(part => emit('PartAsked', { item, part }))),
    }),
  )
  flows.register(
    defineHandler('check-part', {
      events: checkEvents,
      on: 'PartAsked',
      emits: ['PartChecked'],
      retries: 0,
      run: ({ data }, { emit }) => {
        if (broken(data.item, data.part)) throw new Error('broken')
        return emit('PartChecked', data)
      },
    }),
  )
  flows.register(
    defineJoin('put-together', {
      events: checkEvents,
      on: 'PartChecked',
      policy: inner,
      emits: ['OrderChecked'],
      run: (events, ctx) => {
        const [first] = events
        seen.push(`${first?.data.item} ${events.map(event => event.data.part).join(' ')} of ${ctx.join.size}`)
        return first === undefined ? undefined : ctx.emit('OrderChecked', { item: first.data.item })
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      policy: outer,
      retries: 0,
      run: (events, { join, emit }) => {
        seen.push(
          `all ${events.map(event => event.data.item).join(' ')} of ${join.size}, failed ${join.failed.join(' ')}`,
        )
        return emit('OrderCleared', { items: events.map(event => event.data.item) })
      },
    }),
  )
  return { ...checks, seen }
}

test('SB-17: a batch in a branch is joined separately, and the events of its join belong to the outer batch', async () => {
  const nested = await openNested({})
  const { flows, seen } = nested
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'ink', 'glue'] })
  const cleared = await flow.waitForEvent('OrderCleared')
  await settled(flow)

  expect(seen.slice(0, 3).sort()).toEqual(['glue left right of 2', 'ink left right of 2', 'pen left right of 2'])
  expect(seen.slice(3)).toEqual(['all pen ink glue of 3, failed '])
  expect(cleared.headers).toEqual({ workflow: { hops: 5, handler: 'clear' } })
  await expectNothingOpen(nested)
})

test('a failed branch of an inner batch fails its join, and with it the outer branch', async () => {
  const nested = await openNested({ broken: (item, part) => item === 'ink' && part === 'left', outer: 'allSettled' })
  const { flows, seen } = nested
  await using worker = flows.worker()
  await worker.start()

  const status = await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink', 'glue'] }))

  expect(seen.at(-1)).toBe('all pen glue of 3, failed 1')
  expect(status).toMatchObject({ state: 'failed', deadLetters: 2 })
  await expectNothingOpen(nested)
})

test('if every inner batch fails, the type their join declares opens the outer join, which fails as well', async () => {
  const nested = await openNested({ broken: () => true })
  const { flows, seen, query } = nested
  await using worker = flows.worker()
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))
  const deadLetters = await query(`
    select consumer, reason, count(*)::int as n from ~dead_letters group by 1, 2 order by 1`)

  expect(seen).toEqual([])
  expect(deadLetters).toEqual([
    { consumer: 'handler:check-part', reason: 'failed', n: 4 },
    { consumer: 'handler:clear', reason: 'join_failed', n: 1 },
    { consumer: 'handler:put-together', reason: 'join_failed', n: 2 },
  ])
  await expectNothingOpen(nested)
})

test('an inner join that tolerates failures lets the outer join continue', async () => {
  const nested = await openNested({ broken: (_, part) => part === 'left', inner: 'allSettled' })
  const { flows, seen } = nested
  await using worker = flows.worker()
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))

  expect(seen.slice(0, 2).sort()).toEqual(['ink right of 2', 'pen right of 2'])
  expect(seen.slice(2)).toEqual(['all pen ink of 2, failed '])
  await expectNothingOpen(nested)
})

test('an inner batch without a join leaves its branch empty when all of it has ended', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  fanOut(flows, { join: 'clear' })
  flows.register(
    defineHandler('take-apart', {
      events: checkEvents,
      on: 'CheckAsked',
      run: ({ data: { item } }, { emit }) =>
        item === 'pen' ? emit('OrderChecked', { item }) : batch(parts.map(part => emit('PartAsked', { item, part }))),
    }),
  )
  flows.register(
    defineHandler('check-part', {
      events: checkEvents,
      on: 'PartAsked',
      run: ({ data }, { emit }) => emit('PartChecked', data),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: (events, { join }) => {
        seen.push(`${events.map(event => event.data.item)}, empty ${join.empty}`)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink', 'glue'] }))

  expect(seen).toEqual(['pen, empty 1,2'])
  await expectNothingOpen(checks)
})

test('one join can close batches at three levels', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const sizes: string[] = []
  const split = (item: string) => batch([1, 2].map(n => emit('CheckAsked', { item: `${item}.${n}` })))
  flows.register(defineHandler('fan-out', { on: 'OrderPlaced', run: () => split('a') }))
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: ({ data: { item } }, { emit }) => (item.length < 7 ? split(item) : emit('OrderChecked', { item })),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: (events, { emit }) => {
        const item = events[0]!.data.item.slice(0, -2)
        sizes.push(`${item} ${events.length}`)
        return emit('OrderChecked', { item })
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: [] }))

  expect(sizes.length).toBe(7)
  expect(sizes.slice(0, 4).sort()).toEqual(['a.1.1 2', 'a.1.2 2', 'a.2.1 2', 'a.2.2 2'])
  expect(sizes.at(-1)).toBe('a 2')
  expect(await joinsOf(checks)).toHaveLength(7)
  await expectNothingOpen(checks)
})
