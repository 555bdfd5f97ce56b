/**
 * Projections: read models that follow the log.
 *
 *     projection          SQL of your own, a handler per type of event
 *     documentProjection  events folded into documents, of one stream or of many
 *     tableProjection     columns set and incremented
 *     liveProjection      nothing kept, folded when read
 *            │
 *            ▼  one form: filter, tables, apply
 *     async ──► a consumer: applied soon after the commit, under a lease, checkpoint with effect
 *     inline ─► applied in the append's own transaction, before its positions are drawn
 *     live ───► folded by `get`
 *
 * Guarantees:
 * - What an async projection writes and its checkpoint are one transaction: each event counts once, in position order.
 * - A projection with tables is rebuilt beside the old ones, which serve until the new ones are switched in; the result is
 *   what a fresh build would give, whatever is appended meanwhile.
 * - Tables are made by a sync, or before the first batch where the store may; never per event.
 * - Registered projections belong to one store. Everything of them lives in its schema.
 *
 * Versions: version 2 of `order-totals` is the consumer `order-totals@2` with the tables `…_v2`. Both run side by side
 * until the old one is no longer registered; its row and its tables stay until somebody removes them.
 *
 * What can fail: `ProjectionNotSynced` before anything is applied; a handler, which follows the failure policy; a switch,
 * with `ViewsDepend` or because it cannot get its locks, and then the old tables go on serving.
 */
import { type Consumer, ensureConsumer } from '../consumers/consumer.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { ConsumerNotFound } from '../consumers/errors.ts'
import { pause, reset, resume } from '../consumers/operator.ts'
import { runUntilIdle, type Tick, type TickOptions, tickOnce } from '../consumers/run/tick.ts'
import { type ConsumerStatus, readStatus } from '../consumers/status.ts'
import { type WaitForOptions, waitForConsumer } from '../consumers/wait-for.ts'
import { DuplicateConsumer, InvalidOption } from '../core/errors.ts'
import { nearestName } from '../core/nearest.ts'
import type { Executor } from '../database/database.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { Schema } from '../schema/schema.ts'
import type { TableRegistry } from '../schema/table.ts'
import { isShadow, projectionConsumer } from './consume.ts'
import type { DocumentProjection } from './document.ts'
import { inlineForm, makeAsync, makeInline } from './lifecycle.ts'
import type { LiveProjection } from './live.ts'
import type { Lifecycle, Projection } from './projection.ts'
import { foldStream, readDocument } from './read.ts'
import type { RebuildOptions } from './rebuild/build.ts'
import { owedRebuilds } from './rebuild/pending.ts'
import { preparation } from './rebuild/prepare.ts'
import { type Rebuilt, rebuild } from './rebuild/rebuild.ts'

export interface RegisterOptions {
  /** Default 'async'. One that is inline already stays so, whatever is said here: see `setLifecycle`. */
  lifecycle?: Lifecycle | undefined
}

export interface ProjectionDescription {
  readonly name: string
  /** Whether this store has its code. */
  readonly isRegistered: boolean
  /** Undefined for one that is registered and has never run. */
  readonly status: ConsumerStatus | undefined
}

export interface Projections {
  /**
   * Makes a projection known to this store; it runs in a daemon, or with a tick. The promise is that of its lifecycle:
   * an inline one is active when it resolves, everything else is at once.
   */
  register(projection: Projection, options?: RegisterOptions): Promise<void>
  /** A document as its projection has it now, or a stream folded by a live one. */
  get<Doc>(
    projection: DocumentProjection<Doc> | LiveProjection<Doc>,
    id: string,
    options?: { tx?: AnyTransaction | undefined },
  ): Promise<Doc | undefined>
  /** Those registered here, and those that only the database knows. */
  list(): Promise<ProjectionDescription[]>
  status(name: string): Promise<ConsumerStatus>
  /** A batch under way still ends; nothing after it begins. */
  pause(name: string): Promise<void>
  /** Goes on at once: a wait after failures is over too. */
  resume(name: string): Promise<void>
  /** Moves the checkpoint only; the read model is kept, so events may count twice. To empty it too, rebuild it. */
  reset(name: string, position: number): Promise<void>
  rebuild(name: string, options?: RebuildOptions): Promise<Rebuilt>
  /** Turns an async projection into an inline one, or back, while writers go on. Back also without its code. */
  setLifecycle(name: string, lifecycle: 'inline' | 'async'): Promise<void>
  /** One batch. */
  tickOnce(name: string, options?: TickOptions): Promise<Tick>
  /** One batch of each. */
  tickAll(options?: TickOptions): Promise<Record<string, Tick>>
  /** Ticks all until nothing is left that could be done now; returns how many events were done with. */
  runUntilIdle(options?: TickOptions): Promise<number>
  /** Runs all of them until the signal aborts. */
  run(signal: AbortSignal): Promise<void>
  /** How far behind each of them is, for a gauge. */
  metrics(): Promise<Record<string, ProjectionMetrics>>
  /** Waits until a projection has applied a position: how to read your own writes. */
  waitFor(name: string, position: number, options?: WaitForOptions): Promise<void>
}

export interface ProjectionMetrics {
  readonly lag: number
  readonly lagSeconds: number
  readonly deadLetters: number
  readonly attempts: number
  readonly isPaused: boolean
}

export interface ProjectionParts {
  readonly consumers: Consumers
  readonly schema: Schema
  readonly tables: TableRegistry
  /** Whether tables may be made on the spot. */
  readonly syncs: boolean
  readonly executorOf: (tx: AnyTransaction) => Executor
  /** Runs these consumers until the signal aborts. */
  readonly runConsumers: (names: readonly string[], signal: AbortSignal) => Promise<void>
}

interface Registered {
  readonly projection: Projection
  readonly consumer: Consumer | undefined
  readonly isLive: boolean
}

export function openProjections(parts: ProjectionParts): Projections {
  const { consumers, schema, tables } = parts
  const { log, wake } = consumers
  const prepare = preparation(log.database, schema, parts.syncs)
  const payRebuild = owedRebuilds({ consumers, prepare })
  const prepareToFollow = async (projection: Projection, signal?: AbortSignal): Promise<void> => {
    await prepare(projection)
    await payRebuild(projection, signal)
  }
  const registered = new Map<string, Registered>()
  const tableOwners = new Map<string, string>()

  const find = (name: string): Registered => {
    const found = registered.get(name)
    if (found !== undefined) return found
    throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, registered.keys()) })
  }
  const findConsumer = (name: string): Consumer => {
    const { consumer } = find(name)
    if (consumer === undefined)
      throw new InvalidOption({ option: 'name', reason: `"${name}" is live: it keeps nothing and follows nothing` })
    return consumer
  }
  const running = (): Consumer[] => [...registered.values()].flatMap(({ consumer }) => consumer ?? [])
  /** One that is registered has a row from now on; any other must have one already. */
  const known = async (name: string): Promise<void> => {
    if (registered.has(name)) return ensureConsumer(log, findConsumer(name))
    const found = (await readStatus(log, { kind: 'projection' })).map(status => status.name)
    if (found.includes(name)) return
    throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, [...registered.keys(), ...found]) })
  }
  const changed = async (change: Promise<void>): Promise<void> => {
    await change
    wake.changed()
  }

  const claimTables = (projection: Projection): void => {
    for (const { declared } of projection.tables) {
      const owner = tableOwners.get(declared.name)
      if (owner !== undefined)
        throw new InvalidOption({ option: `table "${declared.name}"`, reason: `belongs to projection "${owner}"` })
      tables.register(declared, { isReadModel: true })
    }
    for (const { declared } of projection.tables) tableOwners.set(declared.name, projection.name)
  }

  const setLifecycle = async (name: string, lifecycle: 'inline' | 'async'): Promise<void> => {
    if (lifecycle === 'inline') {
      findConsumer(name)
      const { projection } = find(name)
      await payRebuild(projection)
      await changed(makeInline(consumers, projection, prepare))
    } else if (lifecycle === 'async') await changed(known(name).then(() => makeAsync(consumers, name)))
    else
      throw new InvalidOption({ option: 'lifecycle', reason: `must be 'inline' or 'async', not ${String(lifecycle)}` })
  }

  return {
    register(projection, options = {}) {
      const { lifecycle = projection.apply === undefined ? 'live' : 'async' } = options
      checkLifecycle(projection, lifecycle)
      const { name } = projection
      const isLive = lifecycle === 'live'
      const consumer = isLive ? undefined : projectionConsumer(log, projection, prepareToFollow)
      if (registered.has(name)) throw new DuplicateConsumer({ consumer: name })
      if (consumer !== undefined) {
        const unregister = consumers.register(consumer)
        try {
          claimTables(projection)
        } catch (error) {
          unregister()
          throw error
        }
        const inline = inlineForm(log, projection)
        if (inline !== undefined) log.inline.register(inline)
      }
      registered.set(name, { projection, consumer, isLive })
      return lifecycle === 'inline' ? setLifecycle(name, 'inline') : Promise.resolve()
    },
    async get<Doc>(
      projection: DocumentProjection<Doc> | LiveProjection<Doc>,
      id: string,
      { tx }: { tx?: AnyTransaction | undefined } = {},
    ): Promise<Doc | undefined> {
      const executor = tx === undefined ? log.database : parts.executorOf(tx)
      const isLive = projection.apply === undefined || registered.get(projection.name)?.isLive === true
      if (isLive) return (await foldStream(log, executor, projection, id)) as Doc | undefined
      if (tx === undefined) await prepare(projection)
      return (await readDocument(log, executor, projection as DocumentProjection<Doc>, id)) as Doc | undefined
    },
    async list() {
      const found = new Map((await readStatus(log, { kind: 'projection' })).map(status => [status.name, status]))
      const names = [...new Set([...registered.keys(), ...found.keys()])].filter(name => !isShadow(name)).sort()
      return names.map(name => ({ name, isRegistered: registered.has(name), status: found.get(name) }))
    },
    async status(name) {
      await known(name)
      return (await readStatus(log, { names: [name] }))[0]!
    },
    pause: name => changed(known(name).then(() => pause(log, [name]))),
    resume: name => changed(known(name).then(() => resume(log, [name]))),
    reset: (name, position) => changed(known(name).then(() => reset(log, [name], position))),
    rebuild: async (name, options) => rebuild({ consumers, prepare }, find(name).projection, options),
    setLifecycle,
    tickOnce: async (name, options) => tickOnce(consumers, findConsumer(name), options),
    async tickAll(options) {
      const ticks: Record<string, Tick> = {}
      for (const consumer of running()) ticks[consumer.name] = await tickOnce(consumers, consumer, options)
      return ticks
    },
    async metrics() {
      const statuses = (await readStatus(log, { kind: 'projection' })).filter(({ name }) => !isShadow(name))
      return Object.fromEntries(
        statuses.map(({ name, lag, lagSeconds, deadLetters, attempts, isPaused }) => [
          name,
          { lag: Number(lag), lagSeconds, deadLetters, attempts, isPaused },
        ]),
      )
    },
    runUntilIdle: async options => runUntilIdle(consumers, running(), options),
    run: signal =>
      parts.runConsumers(
        running().map(each => each.name),
        signal,
      ),
    waitFor: (name, position, options) => waitForConsumer(consumers, name, position, options),
  }
}

function checkLifecycle(projection: Projection, lifecycle: Lifecycle): void {
  const { name, apply, fold } = projection
  const refuse = (reason: string): never => {
    throw new InvalidOption({ option: 'lifecycle', reason })
  }
  if (!['inline', 'async', 'live'].includes(lifecycle))
    refuse(`must be 'inline', 'async' or 'live', not ${String(lifecycle)}`)
  if (lifecycle === 'live' && fold === undefined) refuse(`"${name}" cannot be live: only the fold of one stream can`)
  if (lifecycle !== 'live' && apply === undefined) refuse(`"${name}" keeps nothing, so it can only be live`)
}
