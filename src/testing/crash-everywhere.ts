/**
 * A workflow that is killed at each of its await points, and must come to the same end.
 *
 *     await crashEverywhere(charge, { given: placed, effects })
 *
 *     run it undisturbed ──► for each point: run it, kill the process there ──► a new process recovers ──► the same
 *                                                                               events and effects, or an error
 *
 * The points of a handler are: before and after each call of its context, after the code of a step and before its result
 * is recorded, before it completes, and after that is stored but not answered. A killed process does nothing more: its
 * transaction is rolled back, and neither its calls nor its effects count.
 *
 * What can fail: an expectation (`CrashChangesOutcome`, with the point and the first line that differs).
 */
import { deferred } from '../core/abort.ts'
import { type Clock, systemClock, type Timer } from '../core/clock.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Database, Transaction } from '../database/database.ts'
import { identifier } from '../database/sql.ts'
import type { EventMap } from '../events/definition.ts'
import { moveClock } from '../schema/clock.sql.ts'
import { openParts, type StoreOptions } from '../store.ts'
import type { Emission } from '../workflows/emit.ts'
import type { Handler } from '../workflows/handler.ts'
import type { HandlerContext } from '../workflows/steps/context.ts'
import { movableClock, openTime, type TimeSpan } from './advance.ts'
import { callerLine } from './caller-line.ts'
import { currentProcess, type Effect, type Effects, type MortalProcess } from './effects.ts'
import { CrashChangesOutcome } from './errors.ts'
import type { GivenWorkflowEvent } from './specify-handler.ts'
import { sharedEngine } from './test-store.ts'

/** The event that is given, and what holds the effects. */
export interface CrashOptions<M extends EventMap> {
  /** The events of the workflow: the first begins it, the others are published into it at once. */
  given: GivenWorkflowEvent<M> | readonly GivenWorkflowEvent<M>[]
  /** The effects of the handlers on other systems; they are cleared before each run. Default: only events are compared. */
  effects?: Effects | undefined
  /** The program that the handlers are part of, with its other definitions. Its place is ignored. */
  store?: StoreOptions<M> | undefined
  /** How long the workflow may take in the time of the store. Default one day; it takes milliseconds. */
  advance?: TimeSpan | undefined
}

/** A place at which the process was killed. */
export interface CrashPoint {
  /** `before step "charge-card"`, `after the code of step "charge-card"`, `before the completion`, … */
  readonly what: string
  readonly handler: string
  /** The line of your code; undefined for a completion. */
  readonly line: string | undefined
}

/** The points at which the workflow was killed. */
export interface CrashReport {
  /** In the order in which an undisturbed run comes by. */
  readonly points: readonly CrashPoint[]
}

/**
 * Kills the workflow of an event at each of its points, once in a run of its own. Resolves when every run has ended as the
 * undisturbed one.
 *
 * @example
 * ```ts
 * const ship = defineHandler('ship', {
 *   events,
 *   on: 'OrderPlaced',
 *   run: (_, { emit }) => emit('OrderShipped', { carrier: 'Swift' }),
 * })
 * await crashEverywhere(ship, { given: placed })
 * ```
 */
export async function crashEverywhere<M extends EventMap>(
  handlers: Handler<M> | readonly Handler<M>[],
  options: CrashOptions<M>,
): Promise<CrashReport> {
  refuseUnknownOptions('crashEverywhere', options, ['given', 'effects', 'store', 'advance'])
  const plan = { ...options, handlers: [handlers].flat() as unknown as Handler[] } as unknown as CrashPlan
  const undisturbed = await runOnce(plan, undefined)
  for (const [at, point] of undisturbed.points.entries()) {
    const outcome = await runOnce(plan, at)
    const difference = firstDifference(undisturbed, outcome)
    if (difference === undefined) continue
    const { what, handler, line } = point
    const killed = { point: what, handler, pointLine: line }
    throw new CrashChangesOutcome({ ...difference, ...killed, expected: shown(undisturbed), actual: shown(outcome) })
  }
  return { points: undisturbed.points }
}

interface CrashPlan extends Omit<CrashOptions<EventMap>, 'given' | 'store'> {
  readonly given: GivenWorkflowEvent<EventMap> | readonly GivenWorkflowEvent<EventMap>[]
  readonly handlers: readonly Handler[]
  readonly store?: StoreOptions | undefined
}

interface StoredEvent {
  readonly stream: string
  readonly type: string
  readonly data: unknown
}

interface Outcome {
  readonly points: readonly CrashPoint[]
  readonly events: readonly StoredEvent[]
  readonly effects: readonly Effect[]
  /** Dead letters and work that is left, in words. */
  readonly failures: readonly string[]
  /** The line of each event that was emitted, by type. */
  readonly emittedAt: ReadonlyMap<string, string>
}

const beganAt = '2030-01-01T00:00:00.000Z'
const correlationId = '00000000-0000-7000-8000-00000000c4a5'

/** Kills the process at the point of this number; undefined: never. */
async function runOnce(plan: CrashPlan, killAt: number | undefined): Promise<Outcome> {
  plan.effects?.clear()
  const { database, spare } = await sharedEngine()
  const schema = await spare.take(`temporary_crash_${process.pid}`)
  const emittedAt = new Map<string, string>()
  const points: CrashPoint[] = []
  try {
    const first = mortalProcess(database, 'killed', killAt, points, emittedAt)
    let at = await live(first, plan, schema, beganAt, true)
    if (first.isDead) {
      const second = mortalProcess(database, 'recovering', undefined, [], emittedAt)
      at = await live(second, plan, schema, at, false)
    }
    return { points, emittedAt, effects: plan.effects?.list() ?? [], ...(await readOutcome(database, schema)) }
  } finally {
    await moveClock(database, schema, undefined)
    await spare.release(schema)
  }
}

/** Runs the workflow until nothing is left to do or the process is killed. Returns the time of the store. */
async function live(self: Mortal, plan: CrashPlan, schema: string, from: string, begins: boolean): Promise<string> {
  const clock = movableClock(self.clock)
  const { url: _url, pool: _pool, folder: _folder, memory: _memory, ...program } = plan.store ?? {}
  const names = new Set(plan.handlers.map(({ name }) => name))
  const others = (list: readonly Handler[] = []): Handler[] => list.filter(({ name }) => !names.has(name))
  let time!: ReturnType<typeof openTime>
  const work = async (): Promise<void> => {
    const { store } = await openParts(
      {
        ...program,
        ...{ database: self.database, schema, clock, migrate: true, logger: false, closeMs: 0 },
        handlers: [...others(program.handlers as readonly Handler[]), ...plan.handlers.map(self.wrap)],
        joins: others(program.joins as readonly Handler[]),
        undos: others(program.undos as readonly Handler[]),
      } as StoreOptions,
      async parts => {
        time = openTime(parts, clock)
        await time.moveTo(from)
      },
    )
    try {
      if (begins)
        for (const [index, event] of [plan.given].flat().entries()) {
          const { type, data, stream } = event as StoredEvent
          const id = `00000000-0000-7000-8000-${String(index + 1).padStart(12, '0')}`
          await store.workflows.publish(type, data as never, { id, correlationId, stream })
        }
      await time.advance(plan.advance ?? { days: 1 })
    } finally {
      await store.close()
    }
  }
  try {
    // Code of a killed process that still runs ends by itself: it has no effect.
    await Promise.race([currentProcess.run(self, work), self.death])
  } catch (error) {
    if (!self.isDead) throw error
  } finally {
    self.end()
  }
  return clock.now().toISOString()
}

interface Mortal extends MortalProcess {
  readonly database: Database
  readonly clock: Clock
  /** Rejects when it is killed. */
  readonly death: Promise<never>
  wrap(handler: Handler): Handler
  /** Its timers would keep the program running. */
  end(): void
}

class Killed extends Error {
  override readonly name = 'Killed'
}

/** A process with its own view of the database, which is dead from the point with the number `killAt` on. */
function mortalProcess(
  engine: Database,
  name: string,
  killAt: number | undefined,
  points: CrashPoint[],
  emittedAt: Map<string, string>,
): Mortal {
  const death = deferred<never>()
  death.promise.catch(() => {})
  const timers = new Set<Timer>()
  /** Executions of the handlers that were returned by their code, and are not stored yet. */
  const completing = new Map<string, string>()

  /** Notes a point, and dies there if it is the one. Returns whether the process is dead. */
  const reach = (handler: string, what: string, line: string | undefined): boolean => {
    if (self.isDead) return true
    points.push({ what, handler, line })
    if (points.length - 1 !== killAt) return false
    self.isDead = true
    death.reject(new Killed(`killed ${what}`))
    return true
  }
  const ifAlive = <T>(call: () => Promise<T>): Promise<T> =>
    self.isDead ? death.promise : Promise.race([call(), death.promise])
  /** After the statement that stores the end of executions: the answer gets lost. */
  const answered = <T>(labels: readonly string[], value: T): T | Promise<never> => {
    if (!labels.includes('workflows.complete')) return value
    for (const [execution, handler] of [...completing]) {
      completing.delete(execution)
      if (reach(handler, 'after the completion', undefined)) return death.promise
    }
    return value
  }
  const statement = async <T>(label: string, call: () => Promise<T>): Promise<T> =>
    answered([label], await ifAlive(call))

  const self: Mortal = {
    isDead: false,
    death: death.promise,
    clock: {
      now: () => systemClock.now(),
      setTimeout(fn, ms) {
        const timer = systemClock.setTimeout(() => {
          timers.delete(timer)
          fn()
        }, ms)
        timers.add(timer)
        return timer
      },
    },
    database: {
      ...engine,
      // Another opening than that of the process that recovers: its leases are free at once.
      soleUser: name,
      neighbours: new Set(),
      run: given => statement(given.label, () => engine.run<never>(given)),
      runArrays: given => statement(given.label, () => engine.runArrays(given)),
      async transaction(work, options) {
        const labels: string[] = []
        const watched = (tx: Transaction): Transaction => ({
          ...tx,
          run: given => {
            labels.push(given.label)
            return ifAlive(() => tx.run<never>(given))
          },
          runArrays: given => {
            labels.push(given.label)
            return ifAlive(() => tx.runArrays(given))
          },
        })
        if (self.isDead) return death.promise
        // Dead inside of it: it is rolled back.
        const value = await engine.transaction(tx => ifAlive(() => work(watched(tx))), options)
        return answered(labels, value)
      },
    },
    wrap: handler => ({
      ...handler,
      run: (given: unknown, context: HandlerContext) =>
        currentProcess.run(self, async () => {
          const watched = watchContext(handler.name, context, reach, () => death.promise, emittedAt)
          const result = await handler.run(given as never, watched as never)
          if (reach(handler.name, 'before the completion', undefined)) return death.promise
          completing.set(context.executionId, handler.name)
          return result
        }),
    }),
    end() {
      for (const timer of timers) timer.cancel()
    },
  }
  return self
}

type Reach = (handler: string, what: string, line: string | undefined) => boolean

/** The calls of a context that have a name as their first argument and code as their second. */
const working = ['step', 'tx'] as const
const waiting = ['sleep', 'sleepUntil', 'waitForEvent', 'start'] as const

function watchContext(
  handler: string,
  context: HandlerContext,
  reach: Reach,
  dead: () => Promise<never>,
  emittedAt: Map<string, string>,
): object {
  type AnyCall = (first: unknown, ...rest: unknown[]) => Promise<unknown>
  const calls = context as unknown as Readonly<Record<string, AnyCall>>
  const watch =
    (kind: string, call: AnyCall, hasCode: boolean): AnyCall =>
    (first, ...rest) => {
      const line = callerLine()
      const what = typeof first === 'string' ? `${kind} "${first}"` : kind
      if (reach(handler, `before ${what}`, line)) return dead()
      const [code, ...others] = rest as [AnyCall, ...unknown[]]
      const inside = async (...given: [unknown]): Promise<unknown> => {
        const value = await code(...given)
        return reach(handler, `after the code of ${what}`, line) ? dead() : value
      }
      const made = hasCode && typeof code === 'function' ? call(first, inside, ...others) : call(first, ...rest)
      const answered = made.then(value => (reach(handler, `after ${what}`, line) ? dead() : value))
      // As of the context itself: a call that is not awaited must not end the program.
      answered.catch(() => {})
      return answered
    }
  const watched: Record<PropertyKey, unknown> = {
    emit(...given: Parameters<HandlerContext['emit']>): Emission {
      const line = callerLine()
      if (line !== undefined && !emittedAt.has(given[0])) emittedAt.set(given[0], line)
      return context.emit(...given)
    },
  }
  for (const kind of [...working, ...waiting]) {
    const call = calls[kind]
    if (call !== undefined) watched[kind] = watch(kind, call, kind === 'step' || kind === 'tx')
  }
  return new Proxy(context, { get: (target, name) => watched[name] ?? Reflect.get(target, name, target) })
}

async function readOutcome(database: Database, schema: string): Promise<Pick<Outcome, 'events' | 'failures'>> {
  const read = <R extends object>(text: string): Promise<R[]> =>
    database.run<R>({
      label: 'testing.outcome',
      text: text.replaceAll(/~(\w+)/g, (_, table: string) => identifier(schema, table).quoted),
      values: [],
    })
  const events = await read<StoredEvent>('select stream, type, data from ~events order by stream, version')
  const failures = await read<{ what: string }>(`
    select format('a dead letter of %s: %s', consumer, reason) as what from ~dead_letters
    union all
    select format('an execution that is %s', state) from ~workflow_executions
    order by 1`)
  return { events: events.map(withoutIds), failures: failures.map(({ what }) => what) }
}

/** Ids may be new in each run. */
function withoutIds<T>(value: T): T {
  const text = JSON.stringify(value).replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<id>')
  return JSON.parse(text) as T
}

interface Difference {
  readonly what: string
  readonly line: string | undefined
}

function firstDifference(expected: Outcome, actual: Outcome): Difference | undefined {
  const nameOf = ({ name, data }: Effect): string => `effect "${name}" with ${JSON.stringify(withoutIds(data ?? null))}`
  const effect = differing(expected.effects, actual.effects, nameOf)
  if (effect !== undefined) return { what: effect.what, line: effect.of?.line }
  const eventOf = ({ stream, type, data }: StoredEvent): string =>
    `event ${type} in ${stream} with ${JSON.stringify(data)}`
  const event = differing(expected.events, actual.events, eventOf)
  if (event !== undefined) return { what: event.what, line: actual.emittedAt.get(event.of?.type ?? '') }
  const failure = differing(expected.failures, actual.failures, each => each)
  return failure === undefined ? undefined : { what: failure.what, line: undefined }
}

/** The first thing that is there more, or less often. */
function differing<T>(
  expected: readonly T[],
  actual: readonly T[],
  nameOf: (each: T) => string,
): { what: string; of: T | undefined } | undefined {
  const count = (list: readonly T[], name: string): number => list.filter(each => nameOf(each) === name).length
  for (const each of [...actual, ...expected]) {
    const name = nameOf(each)
    const [had, has] = [count(expected, name), count(actual, name)]
    if (had !== has) return { what: `${name} is there ${times(has)} instead of ${times(had)}`, of: each }
  }
  return undefined
}

function times(count: number): string {
  return count === 0 ? 'never' : count === 1 ? 'once' : `${count} times`
}

function shown({ events, effects, failures }: Outcome): object {
  return { events, effects: effects.map(({ name, data }) => ({ name, data })), failures }
}
