/**
 * PGlite behind the `Database` interface: PostgreSQL compiled to WebAssembly, in this process and on this thread.
 *
 *     run, copyOut, listen ──┐
 *     transaction ───────────┼──► turns (fair, bounded) ──► engine ──► PGlite ──► <folder>/data
 *     vacuum ────────────────┘
 *
 * There is one connection, so calls take turns: a statement is one turn, and a transaction is one turn from begin to end.
 * Between statements the event loop can run. A call from inside a transaction would wait for its own turn, so it fails at
 * once.
 *
 * The data survives the end of the process at any moment, but PGlite never syncs its files to disk: a power cut or a crash
 * of the operating system can cost the last writes or the whole folder.
 */
import { randomUUID } from 'node:crypto'
import { type Clock, systemClock } from '../../core/clock.ts'
import { StoreClosed } from '../../core/errors.ts'
import type { Database, DatabaseFiles, Listener, Transaction, TransactionOptions } from '../database.ts'
import type { Statement } from '../sql.ts'
import { toRillflowError } from '../sqlstate.ts'
import { refuseInside, runOutside } from '../transaction.ts'
import { type Engine, makeImage, startEngine } from './engine.ts'
import { type Folder, openFolder } from './folder.ts'
import { type Images, images } from './image.ts'
import { runPgliteTransaction } from './transaction.ts'
import { openTurns } from './turns.ts'
import { startVacuum } from './vacuum.ts'

/** Where the data is: in a folder, or only in memory. */
export type PgliteLocation = { folder: string } | { memory: true }

export interface PgliteOptions {
  /** How many calls may wait for their turn. Default 10 000. */
  maxQueued?: number | undefined
  /** Default limit of a transaction. Default 5 000. */
  transactionTimeoutMs?: number | undefined
  clock?: Clock | undefined
  /** Where the image of an empty database is stored. Default: in the user's cache folder. */
  imageFolder?: string | undefined
}

export async function openPglite(where: PgliteLocation, options: PgliteOptions = {}): Promise<Database> {
  const { maxQueued = 10_000, transactionTimeoutMs = 5_000, clock = systemClock } = options
  const turns = openTurns('database', maxQueued)
  let revoke: ((error: Error) => void) | undefined
  const cutOff = (reason: () => Error): void => {
    turns.refuseNew(reason)
    turns.rejectWaiting(reason)
    revoke?.(reason())
  }
  const folder = 'folder' in where ? await openFolder(where.folder, error => cutOff(() => error)) : undefined
  const notifications = openNotifications()
  const engine = await startIn(folder, notifications.notify, images(makeImage, options.imageFolder))
  const vacuum = startVacuum({ engine, turns, clock })

  /** Runs `job` when no other call runs. */
  const inTurn = async <T>(call: string, job: () => Promise<T>, signal?: AbortSignal): Promise<T> => {
    refuseInside(database, call)
    const loss = folder?.lock.lost()
    if (loss !== undefined) throw loss
    const endTurn = await turns.take(signal)
    try {
      return await job()
    } finally {
      endTurn()
      vacuum.noteWork()
    }
  }
  const send = (statement: Statement, arrays: boolean): Promise<unknown[]> =>
    engine.run(statement, arrays).catch(error => {
      throw toRillflowError(error, statement.label)
    })
  const run = (statement: Statement, arrays: boolean): Promise<unknown[]> =>
    inTurn(statement.label, () => send(statement, arrays))

  const filesIn = ({ dataDir }: Folder): DatabaseFiles => ({
    hold: (work, signal) =>
      inTurn(
        'backup',
        async () => {
          await engine.command('checkpoint')
          return work({
            folder: dataDir,
            run: async <R extends object>(statement: Statement) => (await send(statement, false)) as R[],
            runArrays: async statement => (await send(statement, true)) as unknown[][],
          })
        },
        signal,
      ),
  })

  const close = async (closeMs: number): Promise<void> => {
    vacuum.stop()
    turns.refuseNew(() => new StoreClosed({}))
    const timer = systemClock.setTimeout(() => cutOff(() => new StoreClosed({})), closeMs)
    await turns.whenFree()
    timer.cancel()
    // If another process has taken the folder, the engine must not write to it, so it is not stopped.
    try {
      if (folder?.lock.lost() === undefined) await engine.stop()
    } finally {
      await folder?.lock.release()
    }
  }
  let closing: Promise<void> | undefined

  const database: Database = {
    engine: 'pglite',
    soleUser: randomUUID(),
    neighbours: new Set(),
    maxConnections: 1,
    connections: () => ({ busy: turns.isFree ? 0 : 1, idle: turns.isFree ? 1 : 0, waiting: turns.waiting }),
    files: folder && filesIn(folder),
    // Measured on the table of events with all its indexes: 200 appended 6–8 ms, 500 read 3 ms, of a kilobyte each 6 ms.
    batch: { appendEvents: 200, readEvents: 500 },
    run: async <R extends object>(statement: Statement) => (await run(statement, false)) as R[],
    runArrays: async statement => (await run(statement, true)) as unknown[][],
    transaction<T>(work: (tx: Transaction) => Promise<T>, given: TransactionOptions = {}): Promise<T> {
      const timeoutMs = given.timeoutMs ?? transactionTimeoutMs
      const onOpen = (revokeOpen: (error: Error) => void): (() => void) => {
        revoke = revokeOpen
        return () => {
          revoke = undefined
        }
      }
      const parts = { database, engine, clock, maxQueued, onOpen }
      return inTurn('transaction', () => runPgliteTransaction(parts, work, { ...given, timeoutMs }), given.signal)
    },
    copyOut: text =>
      inTurn('copy', () => engine.copyOut(`copy (${text}) to stdout`)).catch(error => {
        throw toRillflowError(error, 'copy')
      }),
    listen(channel, onNotify) {
      refuseInside(database, 'listen')
      return notifications.listen(channel, onNotify, () => inTurn('listen', () => engine.listen(channel)))
    },
    refuseInsideTransaction: call => refuseInside(database, call),
    async close(closeMs) {
      refuseInside(database, 'close')
      closing ??= close(closeMs)
      await closing
    },
  }
  return database
}

async function startIn(
  folder: Folder | undefined,
  onNotify: (channel: string, payload: string) => void,
  { take, remove }: Images,
): Promise<Engine> {
  const dataDir = folder?.dataDir
  const start = async (): Promise<Engine> => {
    const image = folder === undefined || folder.isNew ? await take() : undefined
    if (image === undefined) return startEngine({ dataDir, onNotify })
    try {
      return await startEngine({ dataDir, image, onNotify })
    } catch {
      await Promise.all([remove(), folder?.clear()])
      return startEngine({ dataDir, onNotify })
    }
  }
  try {
    const engine = await start()
    await folder?.opened()
    return engine
  } catch (error) {
    await folder?.lock.release()
    throw toRillflowError(error, 'the opening of the embedded database')
  }
}

interface Notifications {
  notify(channel: string, payload: string): void
  listen(channel: string, onNotify: (payload: string) => void, start: () => Promise<unknown>): Listener
}

/** The listeners of each channel. The engine never stops listening to a channel; without listeners payloads are dropped. */
function openNotifications(): Notifications {
  const listeners = new Map<string, Set<(payload: string) => void>>()
  const started = new Map<string, Promise<unknown>>()
  return {
    notify(channel, payload) {
      // The sender may be inside a transaction, and the listener is not.
      for (const listener of listeners.get(channel) ?? []) queueMicrotask(() => runOutside(() => listener(payload)))
    },
    listen(channel, onNotify, start) {
      const listener = (payload: string): void => onNotify(payload)
      listeners.set(channel, (listeners.get(channel) ?? new Set()).add(listener))
      const starting = started.get(channel) ?? start()
      started.set(channel, starting)
      const ready = starting.then(() => {})
      ready.catch(() => started.delete(channel))
      const receives = ready.then(
        () => true,
        () => undefined,
      )
      return { ready, receives, close: async () => void listeners.get(channel)?.delete(listener) }
    },
  }
}
