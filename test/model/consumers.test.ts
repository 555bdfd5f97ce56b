/**
 * Random sequences of the steps of two workers and an operator on one consumer, compared step by step with a model.
 *
 * Batches and replays have two steps, between which any other step may happen, also of the other worker. On a server they
 * wait inside their transactions; embedded, where there is only one at a time, right before them.
 */

import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Consumer, consumer, ensureConsumer } from '../../src/consumers/consumer.ts'
import { openDeadLetters } from '../../src/consumers/dead-letters/dead-letters.ts'
import { replayRequested } from '../../src/consumers/dead-letters/replay.ts'
import { pause, reset, resume } from '../../src/consumers/operator.ts'
import { type Lease, newOwner, release as releaseLeases, take as takeLease } from '../../src/consumers/row.ts'
import { applyPage } from '../../src/consumers/run/batch.ts'
import { deferred } from '../../src/core/abort.ts'
import type { Log } from '../../src/events/log.ts'
import { settle } from '../../src/events/order/order.ts'
import { long } from '../chaos/chaos.ts'
import { times } from '../chaos/seeded-random.ts'
import { type ConsumerParts, makeEffects, openConsumerParts, quick } from '../support/consumer-parts.ts'
import { onServer, openShop, outcome, placed, type Shop } from '../support/shop.ts'
import { ConsumerModel, type WorkerName } from './consumer-model.ts'

/** One batch or replay that has been begun. */
interface RealJob {
  readonly done: Promise<{ value?: unknown; error?: unknown }>
  readonly fails: ReadonlySet<number>
  readonly isAtGate: Promise<void>
  go(): void
  die(): void
}

interface RealWorker {
  readonly consumers: ConsumerParts
  readonly owner: string
  lease?: Lease | undefined
  job?: RealJob | undefined
}

interface Real {
  readonly shop: Shop
  readonly log: Log
  readonly name: string
  readonly retries: number
  readonly workers: Record<WorkerName, RealWorker>
  /** By position. */
  readonly ids: Map<number, string>
}

type Command = fc.AsyncCommand<ConsumerModel, Real>

const leaseMs = 600_000
const workers = fc.constantFrom<WorkerName>('a', 'b')

const appending = fc.integer({ min: 1, max: 3 }).map(count =>
  command(`append ${count}`, async (model, real) => {
    const events = Array.from({ length: count }, () => placed())
    const { position, eventIds } = await real.shop.store.events.append(`order-${real.name}`, events)
    for (const [at, id] of eventIds.entries()) {
      const each = position - Number(count - 1 - at)
      model.log.push(each)
      real.ids.set(each, id)
    }
  }),
)

/** The next step of a worker: it takes the lease, begins a job under it, or ends the job. */
const working = fc
  .record({
    who: workers,
    limit: fc.integer({ min: 1, max: 4 }),
    bad: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 2 }),
    isReplay: fc.boolean(),
    fails: fc.boolean(),
  })
  .map(({ who, limit, bad, isReplay, fails }) =>
    command(
      `${who} goes on (${isReplay ? `replay that ${fails ? 'fails' : 'succeeds'}` : `${limit} events, ${bad} fail`})`,
      async (model, real) => {
        const { lease, job } = model.workers[who]
        if (lease === undefined) return take(model, real, who)
        if (job !== undefined) return end(model, real, who)
        if (isReplay && hasRequests(model)) return beginReplay(model, real, who, fails)
        return beginBatch(model, real, who, limit, bad)
      },
    ),
  )

async function take(model: ConsumerModel, real: Real, who: WorkerName): Promise<void> {
  const me = real.workers[who]
  const taken = await takeLease(real.log, real.name, me.owner, leaseMs)
  const refusal = model.refusal(who)
  if (refusal !== undefined) return void expect(taken).toBe(refusal)
  const { checkpoint, attempts } = model
  expect(taken).toMatchObject({ checkpoint, attempts })
  me.lease = taken as Lease
  expect(me.lease.fence).toBeGreaterThan(model.fence ?? 0)
  model.take(who, me.lease.fence)
}

async function beginBatch(
  model: ConsumerModel,
  real: Real,
  who: WorkerName,
  limit: number,
  bad: readonly number[],
): Promise<void> {
  const me = real.workers[who]
  const { cursor, attempts, fence } = model.workers[who].lease!
  const positions = model.page(who, limit)
  const { settled } = await settle(real.log)
  const page = await me.consumers.feed.page({}, cursor, settled, limit)
  expect(page.events.map(event => event.position)).toEqual(positions)
  if (positions.length === 0) return
  const fails = new Set(bad.flatMap(at => positions[at] ?? []))
  me.job = begin(real, fails, (log, one, lost) =>
    applyPage(
      { log, consumer: one, lease: me.lease!, from: cursor, batchLimit: limit, attempts, breaker: undefined, lost },
      page,
    ),
  )
  await me.job.isAtGate
  model.workers[who].job = { kind: 'batch', fence, positions, fails }
}

async function beginReplay(model: ConsumerModel, real: Real, who: WorkerName, fails: boolean): Promise<void> {
  const me = real.workers[who]
  const wanted = model.beginReplay(who, fails)
  const job = begin(real, new Set(fails ? model.log : []), (log, one, lost) => {
    const limited = <T>(work: () => Promise<T>): Promise<T> => work()
    const hold = { lease: me.lease!, drain: lost, lost, onRequest: () => () => {}, limited }
    return replayRequested({ log }, one, hold, { limit: 1 })
  })
  await job.isAtGate
  if (typeof wanted === 'object') me.job = job
  else if (wanted === 'lease_lost') expect(await job.done).toMatchObject({ error: { code: 'lease_lost' } })
  else expect(await job.done).toMatchObject({ value: { replayed: 0, failed: 0 } })
}

async function end(model: ConsumerModel, real: Real, who: WorkerName): Promise<void> {
  const me = real.workers[who]
  const job = model.workers[who].job!
  me.job!.go()
  const found = await me.job!.done
  me.job = undefined
  const wanted = job.kind === 'batch' ? model.endBatch(who, job) : model.endReplay(who, job)
  if (wanted === 'lease_lost') expect(found).toMatchObject({ error: { code: 'lease_lost' } })
  else if (typeof wanted === 'boolean')
    expect(found).toMatchObject({ value: wanted ? { replayed: 1, failed: 0 } : { replayed: 0, failed: 1 } })
  else expect(found).toMatchObject({ value: wanted })
  // As a runner does with a paused consumer.
  if (typeof wanted === 'object' && wanted.isPaused) {
    await releaseLeases(real.log, [me.lease!])
    model.release(who)
  }
}

const expiring = fc.constantFrom<WorkerName | undefined>(undefined, 'a', 'b').map(next =>
  command(
    `the lease expires${next === undefined ? '' : `, and ${next} takes it`}`,
    async (model, real) => {
      const text = `update ~consumers set lease_until = now() - interval '1 s' where name = $1`
      await real.shop.query(text, [real.name])
      model.isExpired = true
      if (next !== undefined && model.workers[next].job === undefined) await take(model, real, next)
    },
    model => model.holder !== undefined && model.holder !== next,
  ),
)

const releasing = workers.map(who =>
  command(
    `${who} gives back`,
    async (model, real) => {
      await releaseLeases(real.log, [real.workers[who].lease!])
      real.workers[who].lease = undefined
      model.release(who)
    },
    model => isFree(model, who),
  ),
)

const dying = workers.map(who =>
  command(
    `${who} dies`,
    async (model, real) => {
      const me = real.workers[who]
      me.job?.die()
      expect(await (me.job?.done ?? { error: 'idle' })).toHaveProperty('error')
      me.job = undefined
      model.workers[who] = {}
    },
    model => model.workers[who].lease !== undefined,
  ),
)

const pausing = fc.constant(
  command('pause', async (model, real) => {
    await pause(real.log, [real.name])
    model.isPaused = true
  }),
)

const resuming = fc.integer({ min: 0, max: 4 }).map(seldom =>
  command(
    'resume',
    async (model, real) => {
      await resume(real.log, [real.name])
      model.resume()
    },
    // A consumer that is not paused loses its lease by it.
    model => model.isPaused || seldom === 0,
  ),
)

const resetting = fc.integer({ min: 0, max: 6 }).map(back =>
  command(
    `reset to ${back} before the end`,
    async (model, real) => {
      const position = model.log.at(-1 - back) ?? model.log[0]! - 1
      await reset(real.log, [real.name], position)
      model.reset(position)
    },
    model => model.log.length > 0,
  ),
)

const administering = fc
  .record({
    which: fc.nat(),
    act: fc.constantFrom('retry' as const, 'retry' as const, 'retry' as const, 'resolve' as const),
  })
  .map(({ which, act }) =>
    command(
      `${act} letter ${which}`,
      async (model, real) => {
        const position = pickDeadLetter(model, which)
        const deadLetters = openDeadLetters({ log: real.log })
        const id = real.ids.get(position)!
        const isOpen = model.open(position)
        const found = await outcome<unknown>(
          act === 'retry'
            ? deadLetters.retry(real.name, id)
            : deadLetters.resolve(real.name, id, { note: 'not needed' }),
        )
        if (!isOpen) return void expect(found).toMatchObject({ error: { code: 'dead_letter_conflict' } })
        if (act === 'resolve') return model.resolve(position)
        expect(found).toEqual({ value: { requested: 1, isRunning: model.holder !== undefined && !model.isPaused } })
        model.deadLetters.get(position)!.isRequested = true
      },
      model => model.deadLetters.size > 0,
    ),
  )

test(
  'a consumer with two workers behaves like the reference model, whatever happens between begin and end',
  async () => {
    const shop = await openShop()
    await makeEffects(shop)
    const benches = [openConsumerParts(shop), openConsumerParts(shop)] as const
    const seldom = [expiring, expiring, expiring, releasing, releasing, dying, pausing, resuming, resuming, resetting]
    const often = [...times(40, () => working), ...times(8, () => appending), ...times(12, () => administering)]
    const commands = fc.commands([...often, ...seldom] as fc.Arbitrary<Command>[], {
      maxCommands: long ? 300 : 150,
      size: 'max',
    })
    let walks = 0

    await fc.assert(
      fc.asyncProperty(commands, fc.constantFrom(0, 1), async (walk, retries) => {
        const real = await openWalk(shop, benches, `totals-${++walks}`, retries)
        const model = new ConsumerModel((await settle(real.log)).settled, retries)
        try {
          await fc.asyncModelRun(() => ({ model, real }), walk)
        } finally {
          for (const { job } of Object.values(real.workers)) {
            job?.die()
            await job?.done
          }
        }
        expectNothingLost(model)
      }),
      // Short sequences show little: nothing happens before a lease is taken and a job is begun.
      { numRuns: long ? 500 : onServer ? 10 : 4, unbiased: true },
    )
  },
  long ? 3_600_000 : 120_000,
)

async function openWalk(
  shop: Shop,
  [first, second]: readonly [ConsumerParts, ConsumerParts],
  name: string,
  retries: number,
): Promise<Real> {
  const { log } = first
  await ensureConsumer(log, { name, kind: 'projection', from: 'now' })
  const both = {
    a: { consumers: first, owner: newOwner(log) },
    b: { consumers: second, owner: newOwner(log) },
  }
  return { shop, log, name, retries, workers: both, ids: new Map() }
}

/** Begins a job that waits for a request to continue, or to die. */
function begin(
  { log, name, retries, shop }: Real,
  fails: ReadonlySet<number>,
  work: (log: Log, consumer: Consumer, lost: AbortSignal) => Promise<unknown>,
): RealJob {
  const [atGate, open, lost] = [deferred<void>(), deferred<void>(), new AbortController()]
  const pass = (): Promise<void> => {
    atGate.resolve()
    return open.promise
  }
  const text = shop.named('insert into ~effects (consumer, position, stream, type) values ($1, $2, $3, $4)')
  const recording = consumer(
    {
      name,
      kind: 'projection',
      filter: {},
      async handle(events, ctx) {
        if (onServer) await pass()
        for (const event of events) {
          ctx.at(event)
          await ctx.tx.query(text, [name, event.position, event.stream, event.type])
          if (fails.has(event.position)) throw new Error(`${event.position} is bad`)
        }
      },
    },
    { leaseMs, timeoutMs: leaseMs, retries: retries, backoff: quick, onFailure: 'deadLetter' },
  )
  const { database } = log
  const transaction: typeof database.transaction = async (inside, options) => {
    if (!onServer) await pass()
    return database.transaction(inside, options)
  }
  const done = outcome(work({ ...log, database: { ...database, transaction } }, recording, lost.signal))
  const die = (): void => {
    lost.abort(new Error('died'))
    open.resolve()
  }
  return { done, fails, isAtGate: Promise.race([atGate.promise, done]).then(() => {}), go: open.resolve, die }
}

/** The consumer's row, its dead letters and its effects are those of the model. */
async function compare(model: ConsumerModel, { shop, name, workers: both }: Real): Promise<void> {
  const [row] = await shop.query(
    `select checkpoint, attempts, retry_at is not null as waiting, paused_at is not null as paused,
      case when lease_until > clock_timestamp() then owner end as owner,
      array(select position::text from ~effects where consumer = c.name order by n) as effects,
      array(select concat_ws(' ', position, state, attempts, case when retry_at is not null then 'requested' end)
        from ~dead_letters where consumer = c.name order by position) as dead_letters
    from ~consumers as c where name = $1`,
    [name],
  )
  const deadLetters = [...model.deadLetters].sort(([x], [y]) => (x < y ? -1 : 1))
  expect(row).toEqual({
    checkpoint: model.checkpoint,
    attempts: model.attempts,
    waiting: model.isWaiting,
    paused: model.isPaused,
    owner: model.holder === undefined ? null : both[model.holder].owner,
    effects: model.effects.map(String),
    dead_letters: deadLetters.map(([position, { state, attempts, isRequested }]) =>
      [position, state, attempts, ...(isRequested ? ['requested'] : [])].join(' '),
    ),
  })
}

/** Invariants of the model itself, which was compared with the database at every step. */
function expectNothingLost(model: ConsumerModel): void {
  for (const position of model.log) {
    const count = model.effects.filter(each => each === position).length
    const isPassed = position <= model.checkpoint
    const isSetAside = model.deadLetters.has(position) && model.deadLetters.get(position)!.state !== 'replayed'
    expect(count).toBeLessThanOrEqual(model.maxEffects(position))
    if (isPassed && !isSetAside && !model.leftOut.has(position)) expect(count).toBeGreaterThan(0)
    if (!isPassed && model.resets.length === 0) expect(count).toBe(0)
  }
}

/** Usually an open one. */
function pickDeadLetter({ deadLetters }: ConsumerModel, which: number): number {
  const all = [...deadLetters.keys()]
  const open = all.filter(position => deadLetters.get(position)!.state === 'open')
  const from = open.length === 0 || which % 4 === 0 ? all : open
  return from[which % from.length]!
}

function hasRequests(model: ConsumerModel): boolean {
  return [...model.deadLetters.values()].some(deadLetter => deadLetter.isRequested)
}

function isFree(model: Readonly<ConsumerModel>, who: WorkerName): boolean {
  return model.workers[who].lease !== undefined && model.workers[who].job === undefined
}

function command(
  name: string,
  run: (model: ConsumerModel, real: Real) => Promise<void>,
  check: (model: Readonly<ConsumerModel>) => boolean = () => true,
): Command {
  return {
    check,
    async run(model, real) {
      await run(model, real)
      await compare(model, real)
    },
    toString: () => name,
  }
}
