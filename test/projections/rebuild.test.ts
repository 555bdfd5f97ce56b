import { expect, test } from 'vitest'
import { defineProjection } from '../../src/projections/projection.ts'
import type { RebuildProgress } from '../../src/projections/rebuild/build.ts'
import { onServer, openShop, placed, shipped, shopEvents } from '../support/shop.ts'
import { orders, totalRows, totals } from './read-models.ts'

test('RB-17: a rebuild gives the same as a fresh build, and counts nothing twice', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', [placed(1), placed(2)])
  await shop.store.consumers.runUntilIdle()
  await shop.query(`update ~order_totals set total = 1000`)
  await shop.query(`insert into ~order_totals values ('order-stray', 1, 1)`)

  const { events, position } = await shop.store.projections.rebuild('order-totals')

  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 2, total: '3' }])
  expect(events).toBe(2)
  expect(await shop.store.consumers.status('order-totals')).toMatchObject({ checkpoint: position, state: 'active' })
  await shop.store.events.append('order-1', placed(4))
  await shop.store.consumers.runUntilIdle()
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 3, total: '7' }])
})

test('a rebuild leaves nothing behind: names, indexes and schema are as before', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.projections.register(orders)
  await shop.store.events.append('order-1', placed(1))
  await shop.store.consumers.runUntilIdle()
  const relations = `
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = $1
      and c.relkind in ('r', 'i')
    order by 1`
  const before = await shop.query(relations, [shop.schema])

  await shop.store.projections.rebuild('order-totals')
  await shop.store.projections.rebuild('orders')

  expect(await shop.query(relations, [shop.schema])).toEqual(before)
  expect(await shop.store.schema.plan()).toEqual({ steps: [], problems: [] })
  expect((await shop.store.consumers.list()).items.map(each => each.name)).toEqual(['order-totals', 'orders'])
  expect((await shop.store.documents(orders).get('order-1'))?.data).toMatchObject({ total: 1 })
})

test('the old read model serves reads until the new one is switched in', async () => {
  const shop = await openShop()
  const seen: string[] = []
  let isWatching = false
  await shop.store.projections.register(
    totals({
      batchSize: 1,
      on: {
        OrderPlaced: async (event, ctx) => {
          if (isWatching) {
            const [row] = await ctx.tx.query<{ total: string }>(shop.named('select total from ~order_totals'))
            seen.push(`${row?.total} ${ctx.isRebuild}`)
          }
          await ctx.tx.query(
            `insert into ${ctx.table('order_totals')} as t (stream, total) values ($1, $2)
            on conflict (stream) do update set total = t.total + excluded.total`,
            [event.stream, event.data.total],
          )
        },
      },
    }),
  )
  await shop.store.events.append('order-1', [placed(1), placed(2)])
  await shop.store.consumers.runUntilIdle()
  isWatching = true

  await shop.store.projections.rebuild('order-totals')

  expect(seen).toEqual(['3 true', '3 true'])
})

test('progress is reported with a rate and the remaining events', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', [placed(1), placed(2), placed(3)])
  const reported: RebuildProgress[] = []

  await shop.store.projections.rebuild('order-totals', { onProgress: progress => reported.push(progress) })

  expect(reported[0]).toMatchObject({ phase: 'building', position: 3, head: 3, events: 3, etaMs: 0 })
  expect(reported[0]!.eventsPerSecond).toBeGreaterThan(0)
  expect(reported.at(-1)).toMatchObject({ phase: 'switching', events: 3 })
})

test('a rebuild that was stopped continues where it was, and the old read model was never touched', async () => {
  const shop = await openShop()
  await shop.store.projections.register(orders)
  const streams = Array.from({ length: 5 }, (_, i) => ({ stream: `order-${i}`, events: [placed(1), placed(2)] }))
  await shop.store.events.appendMany(streams)
  await shop.store.consumers.runUntilIdle()
  await shop.query(`update ~orders set body = '{"total": 1000}'`)
  const stop = new AbortController()
  const onProgress = (): void => stop.abort()

  const stopped = shop.store.projections.rebuild('orders', { onProgress, signal: stop.signal })

  await expect(stopped).rejects.toMatchObject({ code: 'aborted' })
  expect((await shop.store.documents(orders).get('order-1'))?.data).toEqual({ total: 1000 })
  const { events } = await shop.store.projections.rebuild('orders')
  expect(events).toBe(0)
  expect((await shop.store.documents(orders).get('order-1'))?.data).toMatchObject({ total: 3 })
})

test('a partial rebuild by other code is discarded, and so is any partial rebuild on request', async () => {
  const shop = await openShop()
  const stop = new AbortController()
  const interrupted = { onProgress: () => stop.abort(), signal: stop.signal }
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', [placed(1), placed(2)])
  await expect(shop.store.projections.rebuild('order-totals', interrupted)).rejects.toMatchObject({ code: 'aborted' })
  const other = await shop.sibling(onServer ? {} : { migrate: true })
  const doubled = totals({
    on: {
      OrderPlaced: (event, ctx) =>
        ctx.tx.query(
          `insert into ${ctx.table('order_totals')} as t (stream, total) values ($1, 2 * $2)
          on conflict (stream) do update set total = t.total + excluded.total`,
          [event.stream, event.data.total],
        ),
    },
  })
  await other.projections.register(doubled)

  expect((await other.projections.rebuild('order-totals')).events).toBe(2)

  expect(await totalRows(shop)).toMatchObject([{ total: '6' }])
  expect((await shop.store.projections.rebuild('order-totals', { restart: true })).events).toBe(2)
  expect(await totalRows(shop)).toMatchObject([{ total: '3' }])
})

test('a second rebuild is refused while one is running', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', placed(1))
  const stop = new AbortController()
  const interrupted = { onProgress: () => stop.abort(), signal: stop.signal }
  await expect(shop.store.projections.rebuild('order-totals', interrupted)).rejects.toMatchObject({ code: 'aborted' })
  const hold = `update ~consumers set owner = $1, lease_until = now() + $2::interval where name = 'order-totals__rebuild'`
  const owner = `${shop.database.soleUser ?? 'somebody'}/else`
  await shop.query(hold, [owner, '1 hour'])

  const running = { code: 'rebuild_running' }
  await expect(shop.store.projections.rebuild('order-totals')).rejects.toMatchObject(running)
  await expect(shop.store.projections.rebuild('order-totals', { restart: true })).rejects.toMatchObject(running)

  await shop.query(hold, [owner, '-1 second'])
  await shop.store.projections.rebuild('order-totals')
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 1, total: '1' }])
})

test('dead letters of events that the rebuild applied are closed, and those of events that fail again stay open', async () => {
  const shop = await openShop()
  const bad = new Set([2, 3])
  await shop.store.projections.register(
    totals({
      retries: 0,
      onFailure: 'deadLetter',
      on: {
        OrderPlaced: (event, ctx) => {
          if (bad.has(event.data.total)) throw new Error(`no ${event.data.total}`)
          return ctx.tx.query(`insert into ${ctx.table('order_totals')} (stream, total) values ($1, $2)`, [
            event.stream,
            event.data.total,
          ])
        },
      },
    }),
  )
  await shop.store.events.appendMany([1, 2, 3].map(n => ({ stream: `order-${n}`, events: placed(n) })))
  await shop.store.consumers.runUntilIdle()
  expect((await shop.store.consumers.status('order-totals')).deadLetters).toBe(2)
  bad.delete(2)

  await shop.store.projections.rebuild('order-totals')

  const deadLetters = await shop.query('select consumer, stream, state from ~dead_letters order by stream')
  expect(deadLetters).toEqual([
    { consumer: 'order-totals', stream: 'order-2', state: 'replayed' },
    { consumer: 'order-totals', stream: 'order-3', state: 'open' },
  ])
  expect((await totalRows(shop)).map(row => row.stream)).toEqual(['order-1', 'order-2'])
})

test('a rebuild stopped by its policy leaves the old read model as it is', async () => {
  const shop = await openShop()
  let isBroken = false
  await shop.store.projections.register(
    totals({
      retries: 0,
      onFailure: 'stop',
      on: {
        OrderPlaced: (event, ctx) => {
          if (isBroken) throw new Error('broken')
          return ctx.tx.query(`insert into ${ctx.table('order_totals')} (stream) values ($1)`, [event.stream])
        },
      },
    }),
  )
  await shop.store.events.append('order-1', placed(1))
  await shop.store.consumers.runUntilIdle()
  isBroken = true

  await expect(shop.store.projections.rebuild('order-totals')).rejects.toThrow('broken')

  expect(await totalRows(shop)).toHaveLength(1)
  isBroken = false
  await shop.store.events.append('order-2', placed(1))
  await shop.store.consumers.runUntilIdle()
  expect(await totalRows(shop)).toHaveLength(2)
  expect((await shop.store.projections.rebuild('order-totals')).events).toBe(2)
})

test('RB-17: a projection with only a reset hook is emptied and filled in place, and then follows again', async () => {
  const shop = await openShop()
  await shop.query('create table ~log (stream text not null)')
  await shop.store.projections.register(
    defineProjection('in-place', {
      events: shopEvents,
      reset: ctx => ctx.tx.query(`delete from ${ctx.table('log')}`),
      on: {
        OrderPlaced: (event, ctx) =>
          ctx.tx.query(`insert into ${ctx.table('log')} values ($1)`, [`${event.stream} ${ctx.isRebuild}`]),
      },
    }),
  )
  await shop.store.events.append('order-1', [placed(1), placed(2)])
  await shop.store.consumers.runUntilIdle()
  await shop.store.events.append('order-2', placed(1))

  const { position } = await shop.store.projections.rebuild('in-place')

  expect((await shop.query<{ stream: string }>('select stream from ~log')).map(row => row.stream).sort()).toEqual([
    'order-1 true',
    'order-1 true',
    'order-2 true',
  ])
  await shop.store.consumers.waitFor('in-place', position)
  expect((await shop.store.consumers.status('in-place')).state).toBe('active')
})

test('an in-place rebuild that was stopped stays marked, and continues when it is called again', async () => {
  const shop = await openShop()
  await shop.query('create table ~log (stream text not null)')
  let resets = 0
  await shop.store.projections.register(
    defineProjection('in-place', {
      events: shopEvents,
      reset: ctx => {
        resets++
        return ctx.tx.query(`delete from ${ctx.table('log')}`)
      },
      on: {
        OrderPlaced: (event, ctx) => ctx.tx.query(`insert into ${ctx.table('log')} values ($1)`, [event.stream]),
      },
    }),
  )
  await shop.store.events.append('order-1', [placed(1), placed(2)])
  await shop.store.consumers.runUntilIdle()
  await shop.store.events.append('order-2', shipped())
  const stop = new AbortController()
  const interrupted = { onProgress: () => stop.abort(), signal: stop.signal }

  await expect(shop.store.projections.rebuild('in-place', interrupted)).rejects.toMatchObject({ code: 'aborted' })

  expect((await shop.store.consumers.status('in-place')).state).toBe('rebuilding')
  expect(await shop.store.consumers.runOnce('in-place')).toEqual({ result: 'rebuilding', count: 0 })
  const waiting = shop.store.consumers.waitFor('in-place', 1, { timeoutMs: 20 })
  await expect(waiting).rejects.toMatchObject({ code: 'timed_out' })
  await shop.store.projections.rebuild('in-place')
  expect(resets).toBe(1)
  expect(await shop.query('select stream from ~log')).toHaveLength(2)
})

test('a projection that cannot be emptied is not rebuilt', async () => {
  const { store } = await openShop()
  await store.projections.register(defineProjection('plain', { on: { OrderPlaced: () => {} } }))

  await expect(store.projections.rebuild('plain')).rejects.toMatchObject({ code: 'rebuild_impossible' })
})
