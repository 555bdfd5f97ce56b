/**
 * PGlite behind the `Database` interface: PostgreSQL compiled to WebAssembly, in this process and on this thread.
 *
 *     run, copyOut, listen ──┐
 *     transaction ───────────┼──► turns (fair, bounded) ──► engine ──► PGlite ──► <folder>/data
 *     vacuum ────────────────┤                                │
 *     guests, through a hub ─┘                                └──► or, as a guest: socket ──► the process that has it
 *
 * One process has the folder open; others use it through that one, as guests, and the first guest that finds it gone takes
 * its place (`opening.ts`).
 *
 * There is one connection, so calls take turns: a statement is one turn, and a transaction is one turn from begin to end.
 * Between statements the event loop can run. A call from inside a transaction would wait for its own turn, so it fails at
 * once.
 *
 * The data survives the end of the process at any moment, but PGlite never syncs its files to disk: a power cut or a crash
 * of the operating system can cost the last writes or the whole folder.
 */
import { join, resolve } from 'node:path'
import { abortable } from '../../core/abort.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { StoreClosed } from '../../core/errors.ts'
import type { Database, DatabaseFiles, Listener, Transaction, TransactionOptions } from '../database.ts'
import type { Statement } from '../sql.ts'
import { toRillflowError } from '../sqlstate.ts'
import { refuseInside, runOutside } from '../transaction.ts'
import type { Engine } from './engine.ts'
import { TurnNotGranted } from './guest.ts'
import { type Opening, type OpeningParts, openInFolder, openInMemory } from './opening.ts'
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
  /** How long a guest may be silent in its turn before it is cut off. Default 10 000. */
  guestSilenceMs?: number | undefined
  /** How long a process that has the folder open may take to answer: it may be starting, or closing. Default 10 000. */
  holderPatienceMs?: number | undefined
}

export async function openPglite(where: PgliteLocation, options: PgliteOptions = {}): Promise<Database> {
  const { maxQueued = 10_000, transactionTimeoutMs = 5_000, clock = systemClock } = options
  const turns = openTurns('database', maxQueued)
  const neighbours: Database['neighbours'] = new Set()
  const notifications = openNotifications()
  let revoke: ((error: Error) => void) | undefined
  const cutOff = (reason: () => Error): void => {
    turns.refuseNew(reason)
    turns.rejectWaiting(reason)
    revoke?.(reason())
  }
  const parts: OpeningParts = {
    turns,
    neighbours,
    imageFolder: options.imageFolder,
    guestSilenceMs: options.guestSilenceMs ?? 10_000,
    holderPatienceMs: options.holderPatienceMs ?? 10_000,
    onNotify: notifications.notify,
    onLost: error => cutOff(() => error),
    noteWork: () => vacuum.noteWork(),
  }
  const open = (): Promise<Opening> => ('folder' in where ? openInFolder(where.folder, parts) : openInMemory(parts))
  let opening = await open()

  /** Begins the turn of this process, at the next holder if the present one has gone. */
  const begin = async (): Promise<Opening> => {
    for (;;) {
      if (opening.isGone) {
        opening = await open()
        await opening.begin()
        for (const channel of notifications.channels()) await opening.engine.listen(channel)
        return opening
      }
      try {
        await opening.begin()
        return opening
      } catch (error) {
        if (!(error instanceof TurnNotGranted)) throw error
      }
    }
  }
  /** Runs `job` when no other call runs. */
  const inTurn = async <T>(call: string, job: (engine: Engine) => Promise<T>, signal?: AbortSignal): Promise<T> => {
    refuseInside(database, call)
    const loss = opening.lost()
    if (loss !== undefined) throw loss
    const endTurn = await turns.take(signal)
    const begun = begin()
    try {
      const { engine } = await abortable(begun, signal)
      return await job(engine)
    } finally {
      // If the call was aborted meanwhile, the turn is still to come: it ends when it has begun.
      const ended = begun.then(
        present => present.end(),
        () => {},
      )
      if (signal?.aborted) ended.finally(endTurn).catch(() => {})
      else await ended.finally(endTurn)
      vacuum.noteWork()
    }
  }
  const vacuum = startVacuum({ inTurn: job => inTurn('vacuum', job), work: () => opening.work, turns, clock })
  const send = (engine: Engine, statement: Statement, arrays: boolean): Promise<unknown[]> =>
    engine.run(statement, arrays).catch(error => {
      throw toRillflowError(error, statement.label)
    })
  const run = (statement: Statement, arrays: boolean): Promise<unknown[]> =>
    inTurn(statement.label, engine => send(engine, statement, arrays))

  const filesIn = (folder: string): DatabaseFiles => ({
    hold: (work, signal) =>
      inTurn(
        'backup',
        async engine => {
          await engine.command('checkpoint')
          return work({
            folder: join(resolve(folder), 'data'),
            run: async <R extends object>(statement: Statement) => (await send(engine, statement, false)) as R[],
            runArrays: async statement => (await send(engine, statement, true)) as unknown[][],
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
    await opening.close()
  }
  let closing: Promise<void> | undefined

  const database: Database = {
    engine: 'pglite',
    hasNodes: false,
    get soleUser() {
      return opening.id
    },
    neighbours,
    maxConnections: 1,
    connections: () => ({ busy: turns.isFree ? 0 : 1, idle: turns.isFree ? 1 : 0, waiting: turns.waiting }),
    files: 'folder' in where ? filesIn(where.folder) : undefined,
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
      return inTurn(
        'transaction',
        engine => runPgliteTransaction({ database, engine, clock, maxQueued, onOpen }, work, { ...given, timeoutMs }),
        given.signal,
      )
    },
    copyOut: text =>
      inTurn('copy', engine => engine.copyOut(`copy (${text}) to stdout`)).catch(error => {
        throw toRillflowError(error, 'copy')
      }),
    notify(channel, payload) {
      for (const call of [...neighbours]) call(channel, payload)
    },
    listen(channel, onNotify) {
      refuseInside(database, 'listen')
      return notifications.listen(channel, onNotify, () => inTurn('listen', engine => engine.listen(channel)))
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

interface Notifications {
  /** Those that the engine listens to. */
  channels(): readonly string[]
  notify(channel: string, payload: string): void
  listen(channel: string, onNotify: (payload: string) => void, start: () => Promise<unknown>): Listener
}

/** The listeners of each channel. The engine never stops listening to a channel; without listeners payloads are dropped. */
function openNotifications(): Notifications {
  const listeners = new Map<string, Set<(payload: string) => void>>()
  const started = new Map<string, Promise<unknown>>()
  return {
    channels: () => [...started.keys()],
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
