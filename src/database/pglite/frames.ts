/**
 * The frames that a guest of an embedded store and the process that has its folder open send to each other, over a socket.
 *
 *     guest                                        holder
 *     hello { protocol }        ──────────────►
 *                               ◄──────────────    welcome { protocol, session, generation }
 *     take                      ──────────────►                            waits for its turn, as every other call does
 *                               ◄──────────────    granted generation
 *     data <messages>           ──────────────►                            PostgreSQL's wire protocol, inside the turn
 *                               ◄──────────────    data <replies>
 *     end generation            ──────────────►
 *     hint, notify, alive       ◄─────────────►    hint, notify, alive     at any time
 *
 * A frame is its length, one byte for its kind, and its body. A frame that was cut off is not a frame: a process that ends
 * while it writes one has sent nothing.
 */
import type { Socket } from 'node:net'

/** Raised when the meaning of a frame changes: processes of different protocols do not share a folder. */
export const protocol = 1

const kinds = ['hello', 'welcome', 'take', 'granted', 'data', 'end', 'hint', 'notify', 'alive'] as const
export type FrameKind = (typeof kinds)[number]

/** More than the largest reply that Node can hold as one text. */
const maxFrameBytes = 2 ** 30

const nothing = Buffer.alloc(0)

export function sendFrame(socket: Socket, kind: FrameKind, body: Buffer = nothing): void {
  if (socket.destroyed || !socket.writable) return
  const header = Buffer.alloc(5)
  header.writeUInt32BE(body.length)
  header.writeUInt8(kinds.indexOf(kind), 4)
  socket.cork()
  socket.write(header)
  if (body.length > 0) socket.write(body)
  socket.uncork()
}

export function sendObject(socket: Socket, kind: FrameKind, object: object): void {
  sendFrame(socket, kind, Buffer.from(JSON.stringify(object)))
}

export function sendNumber(socket: Socket, kind: FrameKind, number: number): void {
  const body = Buffer.alloc(8)
  body.writeDoubleBE(number)
  sendFrame(socket, kind, body)
}

export function readObject<T>(body: Buffer): Partial<T> {
  return JSON.parse(body.toString()) as Partial<T>
}

export function readNumber(body: Buffer): number {
  return body.readDoubleBE(0)
}

/** Calls back for each whole frame. A frame that makes no sense, or whose handling throws, ends the connection. */
export function onFrames(socket: Socket, handle: (kind: FrameKind, body: Buffer) => void): void {
  let chunks: Buffer[] = []
  let length = 0
  let wanted = 5
  socket.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    length += chunk.length
    try {
      while (length >= wanted && !socket.destroyed) {
        const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
        const bodyBytes = bytes.readUInt32BE(0)
        if (bodyBytes > maxFrameBytes) throw new RangeError(`a frame of ${bodyBytes} bytes`)
        wanted = 5 + bodyBytes
        if (length >= wanted) {
          const kind = kinds[bytes.readUInt8(4)]
          if (kind === undefined) throw new RangeError('a frame of an unknown kind')
          const rest = bytes.subarray(wanted)
          const body = bytes.subarray(5, wanted)
          chunks = rest.length === 0 ? [] : [rest]
          length = rest.length
          wanted = 5
          handle(kind, body)
        } else chunks = [bytes]
      }
    } catch (error) {
      socket.destroy(error as Error)
    }
  })
}
