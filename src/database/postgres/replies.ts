/**
 * Refuses rows that no process could read. The driver collects a whole row before it makes strings of it, in a handler of
 * the socket: a value that is longer than a string can be would end the process there, and one that is nearly as long would
 * take gigabytes. So each message is measured by its header, before it has arrived.
 */
import type { Socket } from 'node:net'
import type pg from 'pg'
import { maxRowBytes, rowTooLarge } from '../sqlstate.ts'

const measured = new WeakSet<object>()

/** Measures the messages to a connection from now on. */
export function measureReplies(client: pg.PoolClient): void {
  const stream = (client as unknown as { connection?: { stream?: Socket } }).connection?.stream
  if (stream === undefined || measured.has(stream)) return
  measured.add(stream)
  const [receive] = stream.listeners('data') as ((chunk: Buffer) => void)[]
  if (receive === undefined) return
  const isFitting = messageSizes()
  stream.off('data', receive)
  stream.on('data', chunk => {
    if (!isFitting(chunk)) return stream.destroy(rowTooLarge())
    try {
      receive.call(stream, chunk)
    } catch (error) {
      // Whatever the driver could not read: the connection is of no more use, and the process is.
      stream.destroy(error as Error)
    }
  })
}

/** Takes the bytes of a connection one chunk after the other; false once a message is announced that is too large. */
function messageSizes(): (chunk: Buffer) => boolean {
  let left = 0
  let header = Buffer.alloc(0)
  return chunk => {
    let at = 0
    while (at < chunk.length) {
      if (left > 0) {
        const taken = Math.min(left, chunk.length - at)
        left -= taken
        at += taken
      } else if (header.length === 0 && chunk.length - at >= headerBytes) {
        left = chunk.readUInt32BE(at + 1) - 4
        at += headerBytes
      } else {
        const taken = Math.min(headerBytes - header.length, chunk.length - at)
        header = Buffer.concat([header, chunk.subarray(at, at + taken)])
        at += taken
        if (header.length < headerBytes) return true
        left = header.readUInt32BE(1) - 4
        header = Buffer.alloc(0)
      }
      if (left > maxRowBytes) return false
    }
    return true
  }
}

/** The kind of the message, and its length. */
const headerBytes = 5
