/**
 * Guests: other processes that use the folder of an embedded store through the process that has it open.
 *
 *     guest ──┐                         ┌─► turns ──► link ──► PGlite
 *     guest ──┼──► <folder>/socket ──► hub
 *     guest ──┘                         └─► hints and notifications, to all others
 *
 * A guest waits for its turn in the same queue as the calls of this process, and has PGlite for itself until it ends the
 * turn: its transactions are as separate from others as those of this process.
 *
 * Guarantees:
 * - A guest that ends in the middle of its turn, however it ends, leaves nothing: its transaction is rolled back, and the
 *   next call has its turn.
 * - A guest that is suspended in its turn holds up the others for at most `silenceMs`; then it is cut off. It finds its
 *   connection lost when it continues.
 * - Only the user of this process can connect: the socket has the mode 0600.
 *
 * What can fail: a file system without sockets. Then there are no guests, and other processes get `FolderLocked`.
 */
import { createHash } from 'node:crypto'
import { chmod, mkdir, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import type { Link } from './engine.ts'
import { onFrames, protocol, readNumber, readObject, sendFrame, sendNumber, sendObject } from './frames.ts'
import { EngineCrash } from './instance.ts'
import type { Turns } from './turns.ts'
import * as wire from './wire.ts'

export interface HubParts {
  readonly link: Link
  readonly turns: Turns
  /** The generation of prepared statements, shared by all engines on the link. */
  readonly shared: { generation: number }
  /** The stores of this process on the database. */
  readonly neighbours: Set<(channel: string, payload: string) => void>
  /** How long a guest may be silent in its turn. It says every second that it is alive. */
  readonly silenceMs: number
  onNotify(channel: string, payload: string): void
  /** To be called after each turn of a guest. */
  noteWork(): void
}

export interface Hub {
  /** Passes a notification of PGlite on to the guests. */
  notify(channel: string, payload: string): void
  /** Ends the connections of all guests and removes the socket. */
  close(): Promise<void>
}

/** The longest path that every system takes for a socket, with a margin. */
const maxPathBytes = 100

/** Where the socket of a folder is. */
export function socketPath(folder: string): string {
  const digest = createHash('sha256').update(folder).digest('hex').slice(0, 24)
  if (process.platform === 'win32') return `\\\\.\\pipe\\rillflow-${digest}`
  const inside = join(folder, 'socket')
  if (Buffer.byteLength(inside) <= maxPathBytes) return inside
  return join(tmpdir(), `rillflow-${userInfo().uid}`, digest)
}

export async function openHub(path: string, parts: HubParts): Promise<Hub> {
  const guests = new Set<Guest>()
  let sessions = 0
  const server = createServer(socket => {
    const guest = welcome(socket, `g${++sessions % 10_000}:`, parts, guests)
    guests.add(guest)
  })
  if (process.platform !== 'win32') {
    if (!path.endsWith('/socket')) await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    // Left by a process that was killed: this one holds the folder.
    await rm(path, { force: true })
  }
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, resolve)
  })
  if (process.platform !== 'win32') await chmod(path, 0o600)
  server.unref()
  return {
    notify(channel, payload) {
      for (const guest of guests) guest.send('notify', channel, payload)
    },
    async close() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      await Promise.all([...guests].map(guest => guest.leave()))
      await closed
    },
  }
}

interface Guest {
  send(kind: 'hint' | 'notify', channel: string, payload: string): void
  /** Cuts the guest off, and resolves when it has left nothing behind. */
  leave(): Promise<void>
}

interface Passed {
  channel: string
  payload: string
}

function welcome(socket: Socket, prefix: string, parts: HubParts, guests: Set<Guest>): Guest {
  const { link, turns, shared, neighbours, silenceMs } = parts
  const giveUp = new AbortController()
  let endTurn: (() => void) | undefined
  let status: wire.Status | undefined = 'I'
  let hasPrepared = false
  let hasCrashed = false
  let receivedAt = Date.now()
  // A guest sends its next message after the reply to the last: the chain only keeps the end behind what runs.
  let running: Promise<void> = Promise.resolve()

  const watch = setInterval(() => {
    if (endTurn !== undefined && Date.now() - receivedAt > silenceMs) socket.destroy()
  }, silenceMs / 10)
  watch.unref()
  socket.unref()

  const take = async (): Promise<void> => {
    endTurn = await turns.take(giveUp.signal)
    receivedAt = Date.now()
    sendNumber(socket, 'granted', shared.generation)
  }
  const exchange = async (message: Buffer): Promise<void> => {
    if (endTurn === undefined) throw new Error('a message outside of a turn')
    hasPrepared = true
    const reply = await link.exchange(message).catch((error: unknown) => {
      if (!(error instanceof EngineCrash)) throw error
      hasCrashed = true
      return wire.errorReply(error.code, error.message)
    })
    status = wire.statusAfter(reply)
    sendFrame(socket, 'data', reply)
  }
  const end = async (generation: number): Promise<void> => {
    if (endTurn === undefined) return
    if (status !== 'I') await link.exchange(wire.query('rollback'))
    status = 'I'
    // After a crash nothing is prepared, for any process.
    shared.generation = generation + (hasCrashed ? 1 : 0)
    hasCrashed = false
    release()
  }
  const release = (): void => {
    const endIt = endTurn
    endTurn = undefined
    endIt?.()
    parts.noteWork()
  }
  const after = (work: () => Promise<void>): void => {
    running = running.then(work).catch(() => void socket.destroy())
  }

  const pass = (kind: 'hint' | 'notify', { channel = '', payload = '' }: Partial<Passed>): void => {
    // The other guests are neighbours, too.
    if (kind === 'hint') for (const call of [...neighbours]) if (call !== hint) call(channel, payload)
    if (kind === 'hint') return
    for (const other of guests) if (other !== guest) other.send(kind, channel, payload)
    parts.onNotify(channel, payload)
  }
  const hint = (channel: string, payload: string): void => guest.send('hint', channel, payload)

  onFrames(socket, (kind, body) => {
    receivedAt = Date.now()
    switch (kind) {
      case 'hello':
        sendObject(socket, 'welcome', { protocol, prefix })
        if (readObject<{ protocol: number }>(body).protocol === protocol) neighbours.add(hint)
        else socket.end()
        return
      case 'take':
        return after(take)
      case 'data':
        return after(() => exchange(Buffer.from(body)))
      case 'end': {
        const generation = readNumber(body)
        return after(() => end(generation))
      }
      case 'hint':
      case 'notify':
        return pass(kind, readObject<Passed>(body))
      case 'alive':
        return sendFrame(socket, 'alive')
      default:
        socket.destroy()
    }
  })

  /** Rolls back, and deallocates the statements that the guest has prepared. */
  const clean = async (): Promise<void> => {
    endTurn ??= hasPrepared ? await turns.take() : undefined
    if (endTurn === undefined) return
    try {
      if (status !== 'I') await link.exchange(wire.query('rollback'))
      await link.exchange(wire.query('deallocate all'))
      shared.generation++
    } finally {
      release()
    }
  }
  const left = new Promise<void>(resolve => {
    socket.on('error', () => {})
    socket.on('close', () => {
      clearInterval(watch)
      guests.delete(guest)
      neighbours.delete(hint)
      giveUp.abort()
      running.then(clean).then(resolve, resolve)
    })
  })

  const guest: Guest = {
    send: (kind, channel, payload) => sendObject(socket, kind, { channel, payload }),
    leave() {
      // Its earlier messages are answered first.
      after(async () => void socket.destroySoon())
      setTimeout(() => socket.destroy(), 1_000).unref()
      return left
    },
  }
  return guest
}
