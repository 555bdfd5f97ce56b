/**
 * How this process reaches the engine of an embedded store: it has PGlite itself, or it is a guest of the process that
 * has the folder open.
 *
 *     no folder, or the folder is free ──► holder: PGlite in this process, and a hub for guests
 *     another process has the folder   ──► guest ── that process ends ──► holder, or guest of the next holder
 *
 * Of several guests that find their holder gone one takes the folder, by its lock; the others become its guests.
 */
import { randomUUID } from 'node:crypto'
import { resolve } from 'node:path'
import { isRillflowError, type RillflowError } from '../../core/errors.ts'
import { toRillflowError } from '../sqlstate.ts'
import { type Engine, type Link, openEngine } from './engine.ts'
import { type Folder, openFolder } from './folder.ts'
import { readSocket } from './folder-lock.ts'
import { joinFolder } from './guest.ts'
import { type Hub, openHub, socketPath } from './hub.ts'
import { type Images, images } from './image.ts'
import { makeImage, startPglite } from './instance.ts'
import type { Turns } from './turns.ts'

export interface Opening {
  readonly engine: Engine
  /** An id of this opening, if this process has PGlite. Leases under the id of an earlier one are free. */
  readonly id: string | undefined
  /** The turn of this process begins. Rejects with `TurnNotGranted` if the holder has gone before that. */
  begin(): void | Promise<void>
  end(): void | Promise<void>
  /** Whether the holder has gone: the store has to be opened again. */
  readonly isGone: boolean
  /** Why the folder no longer belongs to this process, which had it. */
  lost(): RillflowError | undefined
  /** How much PGlite in this process has done so far; undefined of a guest. */
  readonly work: number | undefined
  close(): Promise<void>
}

export interface OpeningParts {
  /** The calls of this process; of a holder, those of its guests, too. */
  readonly turns: Turns
  readonly neighbours: Set<(channel: string, payload: string) => void>
  readonly imageFolder: string | undefined
  readonly guestSilenceMs: number
  readonly holderPatienceMs: number
  onNotify(channel: string, payload: string): void
  /** Another process has taken the folder from this one, which counted as dead. */
  onLost(error: RillflowError): void
  /** After each turn of a guest. */
  noteWork(): void
}

const lookEveryMs = 50

export async function openInMemory(parts: OpeningParts): Promise<Opening> {
  return hold(undefined, parts)
}

export async function openInFolder(folder: string, parts: OpeningParts): Promise<Opening> {
  for (const deadline = Date.now() + parts.holderPatienceMs; ; ) {
    try {
      return await hold(await openFolder(folder, socketPath, parts.onLost), parts)
    } catch (error) {
      if (!isRillflowError(error, 'folder_locked')) throw error
      const socket = await readSocket(folder, socketPath(resolve(folder)))
      const guest = socket === undefined ? undefined : await beGuest(socket, parts)
      if (guest !== undefined) return guest
      // The process that has it does not serve guests, or has not answered for too long.
      if (socket === undefined || Date.now() > deadline) throw error
    }
    await new Promise(resolve => setTimeout(resolve, lookEveryMs))
  }
}

async function hold(folder: Folder | undefined, parts: OpeningParts): Promise<Opening> {
  const { turns, neighbours, noteWork, guestSilenceMs: silenceMs } = parts
  const shared = { generation: 0 }
  let hub: Hub | undefined
  const onNotify = (channel: string, payload: string): void => {
    parts.onNotify(channel, payload)
    hub?.notify(channel, payload)
  }
  const link = await startIn(folder, images(makeImage, parts.imageFolder))
  const engine = await openEngine(link, onNotify)
  if (folder !== undefined) {
    const hubParts = { link, turns, shared, neighbours, silenceMs, noteWork, onNotify: parts.onNotify }
    hub = await openHub(folder.lock.socket, hubParts).catch(() => undefined)
    if (hub === undefined) folder.lock.withdrawSocket()
  }
  const ended = (generation: number): void => {
    shared.generation = generation
  }
  return {
    engine,
    id: randomUUID(),
    begin: () => engine.startTurn(shared.generation),
    end() {
      const generation = engine.endTurn()
      return typeof generation === 'number' ? ended(generation) : generation.then(ended)
    },
    isGone: false,
    lost: () => folder?.lock.lost(),
    get work() {
      return link.work
    },
    async close() {
      await hub?.close()
      // If another process has taken the folder, the engine must not write to it, so it is not stopped.
      try {
        if (folder?.lock.lost() === undefined) await engine.stop()
      } finally {
        await folder?.lock.release()
      }
    },
  }
}

async function startIn(folder: Folder | undefined, { take, remove }: Images): Promise<Link> {
  const dataDir = folder?.dataDir
  const start = async (): Promise<Link> => {
    const image = folder === undefined || folder.isNew ? await take() : undefined
    if (image === undefined) return startPglite({ dataDir })
    try {
      return await startPglite({ dataDir, image })
    } catch {
      await Promise.all([remove(), folder?.clear()])
      return startPglite({ dataDir })
    }
  }
  try {
    const link = await start()
    await folder?.opened()
    return link
  } catch (error) {
    await folder?.lock.release()
    throw toRillflowError(error, 'the opening of the embedded database')
  }
}

async function beGuest(socket: string, { neighbours, onNotify }: OpeningParts): Promise<Opening | undefined> {
  const forward = (channel: string, payload: string): void => link?.hint(channel, payload)
  const link = await joinFolder(socket, {
    onHint(channel, payload) {
      for (const call of [...neighbours]) if (call !== forward) call(channel, payload)
    },
    onNotify,
    onLost: () => void neighbours.delete(forward),
  })
  if (link === undefined) return undefined
  neighbours.add(forward)
  const engine = await openEngine(link, (channel, payload) => {
    onNotify(channel, payload)
    link.notify(channel, payload)
  })
  return {
    engine,
    id: undefined,
    begin: async () => engine.startTurn(await link.take()),
    async end() {
      if (!link.isLost) link.end(await engine.endTurn())
    },
    get isGone() {
      return link.isLost
    },
    lost: () => undefined,
    work: undefined,
    close: () => engine.stop(),
  }
}
