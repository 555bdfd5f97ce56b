/**
 * The other end of the hub: a process that uses the folder of an embedded store which another process has open.
 *
 *     call ──► own turns ──► take ──► granted ──► data ──► data ──► end
 *
 * A guest asks for one turn at a time, so the processes take turns fairly, however many calls wait in each of them.
 *
 * What can fail: the connection, when the process that has the folder open ends or is cut off. A call that waits for its
 * turn has not been sent, and continues elsewhere (`TurnNotGranted`); the outcome of one that has been sent is unknown.
 */
import { createConnection, type Socket } from 'node:net'
import { deferred } from '../../core/abort.ts'
import { ConnectionLost } from '../errors.ts'
import type { Link } from './engine.ts'
import { onFrames, protocol, readNumber, readObject, sendFrame, sendNumber, sendObject } from './frames.ts'

export interface GuestLink extends Link {
  /** Resolves with the generation of prepared statements when it is this guest's turn. */
  take(): Promise<number>
  end(generation: number): void
  hint(channel: string, payload: string): void
  notify(channel: string, payload: string): void
  readonly isLost: boolean
}

export interface GuestListeners {
  onHint(channel: string, payload: string): void
  onNotify(channel: string, payload: string): void
  onLost(): void
}

/** The connection ended before the turn began, so nothing was sent. */
export class TurnNotGranted extends Error {}

/** How long a process that is asked for something may be silent. It answers between any two of its statements. */
const silenceMs = 60_000
const aliveEveryMs = 1_000

/** Connects to the process that has the folder open; undefined if none answers at `path`, or one of another protocol. */
export async function joinFolder(path: string, listeners: GuestListeners): Promise<GuestLink | undefined> {
  const socket = createConnection(path)
  const connected = await new Promise<boolean>(resolve => {
    socket.once('connect', () => resolve(true))
    socket.once('error', () => resolve(false))
  })
  return connected ? introduce(socket, listeners) : undefined
}

interface Welcome {
  protocol: number
  prefix: string
}

async function introduce(socket: Socket, listeners: GuestListeners): Promise<GuestLink | undefined> {
  const welcomed = deferred<Partial<Welcome> | undefined>()
  let granted = expected<number>()
  let replied = expected<Buffer>()
  let isLost = false
  let receivedAt = Date.now()
  // Only while something is awaited: a guest without work does not keep its process alive.
  let alive: NodeJS.Timeout | undefined

  const lose = (): void => {
    if (isLost) return
    isLost = true
    rest()
    welcomed.resolve(undefined)
    granted.reject(new TurnNotGranted())
    replied.reject(
      new ConnectionLost({ reason: 'the process that has the folder open has ended, or cut this one off' }),
    )
    listeners.onLost()
  }
  const rest = (): void => {
    clearInterval(alive)
    alive = undefined
    socket.unref()
  }
  const stir = (): void => {
    socket.ref()
    if (alive !== undefined) return
    receivedAt = Date.now()
    alive = setInterval(() => {
      if (Date.now() - receivedAt > silenceMs) socket.destroy()
      else sendFrame(socket, 'alive')
    }, aliveEveryMs)
  }

  socket.on('error', () => {})
  socket.on('close', lose)
  onFrames(socket, (kind, body) => {
    receivedAt = Date.now()
    switch (kind) {
      case 'welcome':
        return welcomed.resolve(readObject<Welcome>(body))
      case 'granted':
        return granted.resolve(readNumber(body))
      case 'data':
        return replied.resolve(Buffer.from(body))
      case 'hint':
      case 'notify': {
        const { channel = '', payload = '' } = readObject<{ channel: string; payload: string }>(body)
        return kind === 'hint' ? listeners.onHint(channel, payload) : listeners.onNotify(channel, payload)
      }
      case 'alive':
        return
      default:
        socket.destroy()
    }
  })
  stir()
  sendObject(socket, 'hello', { protocol })
  const welcome = await welcomed.promise
  rest()
  if (welcome?.protocol !== protocol || welcome.prefix === undefined) {
    socket.destroy()
    return undefined
  }

  return {
    prefix: welcome.prefix,
    work: 0,
    take() {
      if (isLost) return Promise.reject(new TurnNotGranted())
      granted = expected()
      stir()
      sendFrame(socket, 'take')
      return granted.promise
    },
    exchange(message) {
      if (isLost)
        return Promise.reject(new ConnectionLost({ reason: 'the process that has the folder open has ended' }))
      replied = expected()
      sendFrame(socket, 'data', message)
      return replied.promise
    },
    end(generation) {
      sendNumber(socket, 'end', generation)
      rest()
    },
    hint: (channel, payload) => sendObject(socket, 'hint', { channel, payload }),
    notify: (channel, payload) => sendObject(socket, 'notify', { channel, payload }),
    get isLost() {
      return isLost
    },
    async stop() {
      socket.destroySoon()
      lose()
    },
  }
}

/** A frame that is to come. If the connection ends first, its caller has the error; without a caller it is of no interest. */
function expected<T>(): ReturnType<typeof deferred<T>> {
  const frame = deferred<T>()
  frame.promise.catch(() => {})
  return frame
}
