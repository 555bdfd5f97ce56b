import { readFileSync } from 'node:fs'
import { transformSync } from 'esbuild'
import { describe, expect, test } from 'vitest'
import { isRillflowError } from '../../src/errors.ts'
import { defineEvents } from '../../src/events/definition.ts'
import { crashEverywhere, recordEffects } from '../../src/testing/testing.ts'
import { defineUndo } from '../../src/workflows/cancel/undo.ts'
import { batch, complete } from '../../src/workflows/emit.ts'
import { defineHandler, type Handler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'

interface ShopMap {
  OrderPlaced: { items: string[]; cents: number }
  OrderPaid: { receipt: string }
  PackAsked: { item: string; order: string }
  ItemPacked: { item: string; order: string }
  OrderShipped: { carrier: string }
}

const events = defineEvents<ShopMap>()
const placed = { ...events.create('OrderPlaced', { items: ['tea', 'cup'], cents: 4200 }), stream: 'order-1' }
const effects = recordEffects()
const gateway = {
  charge: (cents: number, { idempotencyKey }: { idempotencyKey?: string }) =>
    effects.record('charge', { cents }, { idempotencyKey, result: 'receipt-1' }),
}

const refund = defineUndo('refund', { run: () => {} })
const charge = defineHandler('charge', {
  events,
  on: 'OrderPlaced',
  async run(event, { step, emit, executionId }) {
    const { cents, items } = event.data
    const receipt = await step('charge-card', () => gateway.charge(cents, { idempotencyKey: executionId }), {
      undo: { by: 'refund', data: { cents } },
    })
    return [
      emit('OrderPaid', { receipt }, { stream: event.stream }),
      batch(items.map(item => emit('PackAsked', { item, order: event.stream }))),
    ]
  },
})
const pack = defineHandler('pack', {
  events,
  on: 'PackAsked',
  run: (event, { emit }) => emit('ItemPacked', event.data),
})
const ship = defineJoin('ship', {
  events,
  on: 'ItemPacked',
  run: (items, { emit }) => emit('OrderShipped', { carrier: 'Swift' }, { stream: items[0]!.data.order }),
})

describe('a workflow that is killed at each of its points', () => {
  test('comes to the same end when its effects have keys', async () => {
    const { points } = await crashEverywhere([charge, pack, ship], {
      given: placed,
      effects,
      store: { events, undos: [refund] },
    })

    const whats = points.filter(({ handler }) => handler === 'charge').map(({ what }) => what)
    expect(whats).toEqual([
      'before step "charge-card"',
      'after the code of step "charge-card"',
      'after step "charge-card"',
      'before the completion',
      'after the completion',
    ])
    expect(points.map(({ handler }) => handler)).toEqual(expect.arrayContaining(['pack', 'ship']))
    expect(points[0]!.line).toMatch(/crash-everywhere\.test\.ts:\d+$/)
    expect(effects.list()).toMatchObject([{ name: 'charge', data: { cents: 4200 } }])
  })

  test('is refused for an effect without a key, with the line that makes it', async () => {
    const careless = defineHandler('charge', {
      events,
      on: 'OrderPlaced',
      async run(event, { step, emit }) {
        const receipt = await step('charge-card', () => gateway.charge(event.data.cents, {})) // the line
        return emit('OrderPaid', { receipt })
      },
    })

    const error = await crashEverywhere(careless, { given: placed, effects }).catch((reason: unknown) => reason)

    if (!isRillflowError(error, 'crash_changes_outcome' as never)) throw error
    const { point, pointLine, what, line } = error as unknown as Readonly<Record<string, string>>
    expect(point).toBe('after the code of step "charge-card"')
    expect(what).toBe('effect "charge" with {"cents":4200} is there 2 times instead of once')
    expect(line).toBe(pointLine)
    expect(String(error)).toContain('crash-everywhere.test.ts')
  })

  test('is refused for an event that another run would emit with other data', async () => {
    let runs = 0
    const counting = defineHandler('count', {
      events,
      on: 'OrderPlaced',
      async run(_event, { step, emit }) {
        runs++
        await step('look', () => 'seen')
        return emit('OrderPaid', { receipt: `receipt of run ${runs}` })
      },
    })

    await expect(crashEverywhere(counting, { given: placed })).rejects.toThrow(
      /event OrderPaid .*crash-everywhere\.test\.ts/s,
    )
  })

  test('continues its waits and timers in the next process', async () => {
    const patient = defineHandler('patient', {
      events,
      on: 'OrderPlaced',
      async run(event, { step, sleep, emit, waitForEvent, tx }) {
        await tx('mark', async handle => (await handle.query('select 1 as one')).length)
        await sleep('a day', 86_400_000)
        const paid = await waitForEvent('OrderPaid', { timeoutMs: 1_000 })
        await step('mail', () => effects.record('mail', { late: paid === undefined }, { idempotencyKey: event.id }))
        return emit('OrderShipped', { carrier: 'Swift' })
      },
    })

    const { points } = await crashEverywhere(patient, { given: placed, effects, advance: { days: 2 } })

    expect(points.length).toBeGreaterThan(10)
    expect(effects.list()).toMatchObject([{ name: 'mail', data: { late: true } }])
  })

  test('is killed at each of forty points, and comes to the same end each time', async () => {
    const items = Array.from({ length: 13 }, (_, at) => `item ${at + 1}`)
    const assemble = defineHandler('assemble', {
      events,
      on: 'OrderPlaced',
      async run(event, { step, emit, executionId }) {
        for (const item of event.data.items)
          await step(`take ${item}`, () =>
            effects.record('take', { item }, { idempotencyKey: `${executionId} ${item}` }),
          )
        return emit('OrderShipped', { carrier: 'Swift' })
      },
    })

    const { points } = await crashEverywhere(assemble, {
      given: events.create('OrderPlaced', { items, cents: 4200 }),
      effects,
    })

    expect(points.length).toBeGreaterThanOrEqual(40)
    expect(effects.list().map(({ data }) => data)).toEqual(items.map(item => ({ item })))
  })

  test.each([
    { page: 'README.md', block: 0, names: ['ship'], data: { cents: 4200 }, ends: ['OrderShipped'] },
    {
      ...{ page: 'docs/tour.md', block: 'defineJoin', names: ['charge', 'pack', 'packed'] },
      ...{ data: { cents: 4200, items: ['tea', 'cup'] }, ends: ['OrderPaid', 'OrderPacked'] },
    },
    { page: 'docs/tour.md', block: 'defineUndo', names: ['charge'], data: {}, undos: ['refund'], ends: [] },
  ])(
    'comes to the same end when it is of the handlers $names of $page',
    async ({ page, names, data, ends, ...rest }) => {
      const found = definitionsOf(page, rest.block, [...names, ...(rest.undos ?? [])])
      const seen = new Set<string>()
      const watch = defineHandler('watch', { on: '*', run: event => void seen.add(event.type) })

      const { points } = await crashEverywhere(
        names.map(name => found[name] as Handler),
        {
          given: { type: 'OrderPlaced', data, stream: 'order-1' } as never,
          store: { handlers: [watch], undos: (rest.undos ?? []).map(name => found[name]) } as never,
        },
      )

      expect(new Set(points.map(({ handler }) => handler))).toEqual(new Set(names))
      expect([...seen]).toEqual(expect.arrayContaining(ends))
    },
  )

  test('refuses an option that it does not know', async () => {
    await expect(crashEverywhere(pack, { given: [], effect: effects } as never)).rejects.toThrow(/effects/)
  })
})

/** The definitions of a page with these names: those of its first block of code, or of the first that has this word. */
function definitionsOf(page: string, block: number | string, names: readonly string[]): Record<string, unknown> {
  const blocks = [...readFileSync(page, 'utf8').matchAll(/```(?:ts|js)\n(.*?)```/gs)].map(([, code]) => code!)
  const text = typeof block === 'number' ? blocks[block]! : blocks.find(code => code.includes(`${block}(`))!
  const [definitions] = text.split(/^(?:const|await using) store = /m) as [string]
  const code = transformSync(definitions.replace(/^import .*$/gm, ''), { loader: 'ts' }).code
  const library = { batch, complete, defineEvents, defineHandler, defineJoin, defineSchedule, defineUndo }
  const make = new Function(...Object.keys(library), `${code}\nreturn { ${names.join(', ')} }`)
  return make(...Object.values(library)) as Record<string, unknown>
}
