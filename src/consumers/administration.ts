/**
 * The administration of consumers, by definition or name: `store.consumers`. It is the same for projections,
 * processors, subscriptions, snapshotters and the dispatcher of workflows.
 *
 *     list · status                        how far each is, and what delays it              (status.ts)
 *     pause · resume · reset · remove      changes its row; the operator wins over a batch  (operator.ts)
 *     waitFor                              until it has applied a position                  (wait-for.ts)
 *     runOnce · runUntilIdle · run         by hand, in this process                         (run/run.ts)
 *
 * A subscription may have groups: `{ group }` names one; without it a change is for all of them, a status for the group
 * 'default'.
 */

import { onAbort } from '../core/abort.ts'
import { type Named, nameOf } from '../core/definition.ts'
import { InvalidOption, isRillflowError } from '../core/errors.ts'
import { nearestName } from '../core/name.ts'
import { refusingUnknownOptions } from '../core/options.ts'
import type { Page } from '../core/page.ts'
import type { Services } from '../core/service.ts'
import type { Executor } from '../database/database.ts'
import { settle } from '../events/order/order.ts'
import { checkPosition } from '../events/read/log.ts'
import { beyondHead, type Consumer, ensureConsumer } from './consumer.ts'
import type { Consumers } from './consumers.ts'
import { type ConsumerDescription, describeConsumer } from './describe.ts'
import { ConsumerNotFound } from './errors.ts'
import * as operator from './operator.ts'
import { removeConsumers } from './remove.ts'
import { readRows } from './row-names.ts'
import { follow } from './run/follow.ts'
import { type RunOptions, type RunResult, runOnce, runUntilIdle } from './run/run.ts'
import type { Runnable } from './runners/runnable.ts'
import { startRunner } from './runners/runner.ts'
import {
  type ConsumerStatus,
  type ListConsumersOptions,
  listConsumers,
  notFound,
  readGroupStatus,
  readStatus,
} from './status.ts'
import { type WaitForOptions, waitForConsumer } from './wait-for.ts'

export interface GroupOption {
  /** The group of a subscription. */
  group?: string | undefined
}

export interface RemoveConsumerOptions extends GroupOption {
  /** Also drop the tables of a projection. Default false. */
  dropTables?: boolean | undefined
}

export interface ConsumerAdministration {
  /** Those of all processes, by name: also those that only the database knows. */
  list(options?: ListConsumersOptions): Promise<Page<ConsumerStatus>>
  status(consumer: Named, options?: GroupOption): Promise<ConsumerStatus>
  /** Its status, and what its definition says: filter, limits, failure policy and tables. */
  describe(consumer: Named, options?: GroupOption): Promise<ConsumerDescription>
  /** The batch that is running completes; none begins after it. */
  pause(consumer: Named, options?: GroupOption): Promise<void>
  /** Continues at once: a wait after failures is over, too. */
  resume(consumer: Named, options?: GroupOption): Promise<void>
  /** Moves the checkpoint only: events after it come again, and a read model may count them twice. */
  reset(consumer: Named, position: number, options?: GroupOption): Promise<void>
  /** Deletes the checkpoint and the dead letters. Its tables stay, unless `dropTables` says otherwise. */
  remove(consumer: Named, options?: RemoveConsumerOptions): Promise<void>
  /** Resolves when it has applied a position: how to read your own writes. */
  waitFor(consumer: Named, position: number, options?: WaitForOptions): Promise<void>
  /** One batch, in this process; of a subscription, the settled events. The result has the error of a failure. */
  runOnce(consumer: Named, options?: RunOptions): Promise<RunResult>
  /** Batches until no event can be applied now, of one consumer or of all; returns how many events were passed. */
  runUntilIdle(consumer?: Named, options?: RunOptions): Promise<number>
  /** Runs it in this process until the signal aborts; rejects with the error that stopped it. */
  run(consumer: Named, options?: RunOptions): Promise<void>
}

export interface AdministrationParts {
  readonly consumers: Consumers
  readonly services: Services
  readonly runnables: readonly Runnable[]
}

export function openAdministration({ consumers, services, runnables }: AdministrationParts): ConsumerAdministration {
  const { log, wake } = consumers

  const isDivided = (name: string): boolean => consumers.divided?.names().includes(name) === true

  /** Changes the row of a consumer, or the rows of a divided one. A registered consumer has a row from now on. */
  const change = async (
    of: Named,
    { group }: GroupOption,
    work: (rows: string[], tx: Executor, isDivided: boolean) => Promise<void>,
  ): Promise<void> => {
    const name = nameOf(of)
    const registered = consumers.get(name)
    if (registered !== undefined) await ensureConsumer(log, registered)
    const isOne = registered !== undefined || (await readStatus(log, { names: [name] })).length > 0
    if (isOne) await work([name], log.database, false)
    else
      await log.database.transaction(async tx => {
        const rows = await readRows(log, name, group, tx)
        if (rows.length === 0) throw await notFound(consumers, name, group, tx)
        await work(rows, tx, true)
      })
    wake.changed()
  }

  const administration: ConsumerAdministration = {
    list: (options = {}) => listConsumers(consumers, options),
    status: async (of, { group = 'default' } = {}) => readGroupStatus(consumers, nameOf(of), group),
    describe: async (of, { group = 'default' } = {}) => describeConsumer(consumers, of, group),
    async pause(of, options = {}) {
      await refuseInline(nameOf(of), 'paused')
      await change(of, options, (rows, tx) => operator.pause(log, rows, tx))
    },
    resume: (of, options = {}) =>
      // A subscription keeps the events that it has delivered, so that they can still be acknowledged.
      change(of, options, (rows, tx, isDivided) => operator.resume(log, rows, tx, { keepsHolder: isDivided })),
    async reset(of, position, options = {}) {
      checkPosition('position', position)
      const { head } = await settle(log)
      if (position > head) throw beyondHead(nameOf(of), 'position', position, head)
      await refuseInline(nameOf(of), 'reset')
      await change(of, options, async (rows, tx, isDivided) => {
        if (isDivided) await consumers.divided?.forget(rows, tx)
        await operator.reset(log, rows, position, tx)
      })
    },
    remove: (of, options = {}) =>
      change(of, options, async (rows, tx, isDivided) => {
        if (isDivided) await consumers.divided?.forget(rows, tx)
        await removeConsumers(log, rows, tx, options)
      }),
    waitFor: async (of, position, options) => waitForConsumer(consumers, nameOf(of), position, options),
    async runOnce(of, options = {}) {
      log.database.refuseInsideTransaction('runOnce')
      const name = nameOf(of)
      if (isDivided(name)) return consumers.divided!.runUntilIdle(name, options)
      return runOnce(consumers, findHere(name), options)
    },
    async runUntilIdle(of, options = {}) {
      log.database.refuseInsideTransaction('runUntilIdle')
      if (of === undefined) {
        const names = consumers.divided?.names() ?? []
        const parts = [
          () => runUntilIdle(consumers, byHand(), options),
          ...names.map(name => async () => (await consumers.divided!.runUntilIdle(name, options)).count),
        ]
        return runEach(parts)
      }
      const name = nameOf(of)
      if (isDivided(name)) return (await consumers.divided!.runUntilIdle(name, options)).count
      return runUntilIdle(consumers, [findHere(name)], options)
    },
    async run(of, { signal } = {}) {
      log.database.refuseInsideTransaction('run')
      if (signal?.aborted) return
      const name = nameOf(of)
      let failure: { readonly error: unknown } | undefined
      let hasBegun = false
      let end = (): void => {}
      const ended = new Promise<void>(resolve => {
        end = resolve
      })
      const onFailure = (_: string, error: unknown): void => {
        failure ??= { error }
        end()
      }
      const begin = (): void => {
        hasBegun = true
      }
      // The runner is also stopped by the store.
      const runnable = observed(runnableAlone(name), begin, end)
      const runner = await startRunner(services, { log, wake, runnables: [runnable] }, {}, { onFailure }).catch(
        (error: unknown) => {
          // The store was closed after the consumer had begun to run, and before the start had returned.
          if (hasBegun && isRillflowError(error, 'store_closed')) return undefined
          throw error
        },
      )
      const release = signal === undefined ? () => {} : onAbort(signal, end)
      await ended
      release()
      await runner?.stop()
      if (failure !== undefined) throw failure.error
    },
  }
  return refusingUnknownOptions('store.consumers', administration, optionsOfCalls)

  /** An inline projection is applied by the appends themselves, whatever its row says. */
  async function refuseInline(name: string, wanted: 'paused' | 'reset'): Promise<void> {
    const [row] = await readStatus(log, { names: [name] })
    if (row?.state !== 'inline') return
    const reason = `Projection "${name}" is inline, so it cannot be ${wanted}: every append applies it. Make it async first: store.projections.switch(${JSON.stringify(name)}, { lifecycle: 'async' }). To fill it again, call store.projections.rebuild.`
    throw new InvalidOption({ option: 'consumer', reason })
  }

  /** The dispatcher is not run by hand: its executions need a runner with handlers. */
  function byHand(): Consumer[] {
    return consumers.list().filter(each => each.kind !== 'dispatcher')
  }

  function findHere(name: string): Consumer {
    const found = consumers.get(name)
    if (found !== undefined) return found
    const names = [...consumers.list().map(each => each.name), ...(consumers.divided?.names() ?? [])]
    throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, names) })
  }

  /** One definition. If its policy stops it, it is not paused, because the caller waits for the error. */
  function runnableAlone(name: string): Runnable {
    if (isDivided(name)) {
      const runnable = runnables.find(each => each.names('subscriptions').includes(name))!
      return {
        ...runnable,
        start: context => runnable.start({ ...context, isWanted: (_, wanted) => wanted === name }),
      }
    }
    const consumer = findHere(name)
    const { kind, from, tables, leaseMs } = consumer
    let isOver = false
    return {
      kinds: ['processors'],
      names: () => [name],
      async start() {
        return {
          // Code that has failed is not started again by a look that was running when it did.
          leased: () =>
            isOver
              ? []
              : [
                  {
                    ...{ name, kind, from, tables, leaseMs },
                    async run(held) {
                      if (isOver) return
                      await follow(consumers, consumer, held).catch((error: unknown) => {
                        isOver = true
                        throw error
                      })
                    },
                  },
                ],
          stop: async () => {},
        }
      },
    }
  }
}

const optionsOfCalls = {
  ...({
    status: [1, ['group']],
    describe: [1, ['group']],
    pause: [1, ['group']],
    resume: [1, ['group']],
    reset: [2, ['group']],
  } as const),
  ...({ remove: [1, ['group', 'dropTables']] } as const),
  ...({ runOnce: [1, ['signal']], runUntilIdle: [1, ['signal']], run: [1, ['signal']] } as const),
}

/** The sum of their results. A part that finds a checkpoint beyond the head does not delay the others. */
async function runEach(parts: readonly (() => Promise<number>)[]): Promise<number> {
  let total = 0
  let failure: { readonly error: unknown } | undefined
  for (const part of parts)
    total += await part().catch((error: unknown) => {
      if (!isRillflowError(error, 'checkpoint_beyond_head')) throw error
      failure ??= { error }
      return 0
    })
  if (failure !== undefined) throw failure.error
  return total
}

function observed(runnable: Runnable, onStart: () => void, onStop: () => void): Runnable {
  return {
    ...runnable,
    async start(context) {
      onStart()
      const part = await runnable.start(context)
      return {
        ...part,
        stop(cutOff) {
          onStop()
          return part.stop(cutOff)
        },
      }
    },
  }
}
