/**
 * COPY, a page at a time: a page is bounded, and no connection waits for a slow reader.
 *
 * Reading is done by the driver's own parser and not by a stream that takes over the socket: there are runtimes with the
 * sockets of Node where such a stream waits for ever.
 */
import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { deferred } from '../../core/abort.ts'
import { maxRowBytes, rowTooLarge } from '../sqlstate.ts'
import { noAnswer } from './pool.ts'

/** Rejects with `ConnectionLost` if nothing arrives for `timeoutMs`. */
export async function copyToBuffer(client: pg.ClientBase, text: string, timeoutMs: number): Promise<Buffer> {
  const query = copyOut(`copy (${text}) to stdout`)
  let silentMs = 0
  let seen = 0
  const timer = setInterval(() => {
    silentMs = query.received === seen ? silentMs + timeoutMs / looks : 0
    seen = query.received
    if (silentMs >= timeoutMs) query.handleError(noAnswer('copy', timeoutMs))
  }, timeoutMs / looks)
  try {
    client.query(query)
    return await query.done
  } finally {
    clearInterval(timer)
  }
}

/** How often one time-out looks for data. */
const looks = 4

interface CopyOut extends pg.Submittable {
  /** The bytes so far. */
  readonly received: number
  readonly done: Promise<Buffer>
  handleError(error: Error): void
}

/** A query as the driver runs it: it sends itself, and is called with each message of the answer. */
function copyOut(text: string): CopyOut {
  const done = deferred<Buffer>()
  let rows = Buffer.allocUnsafe(65_536)
  let length = 0
  const query = {
    // Set by a driver that limits the time of all queries; calling it ends that limit.
    callback: undefined as (() => void) | undefined,
    done: done.promise,
    get received() {
      return length
    },
    submit: (connection: pg.Connection) => connection.query(text),
    handleCopyData({ chunk }: { chunk: Buffer }) {
      if (length + chunk.length > rows.length) {
        const larger = Buffer.allocUnsafe(Math.max(rows.length * 2, length + chunk.length))
        rows.copy(larger, 0, 0, length)
        rows = larger
      }
      // Copied at once: the driver uses the memory of the chunk again.
      chunk.copy(rows, length)
      length += chunk.length
      if (length > maxRowBytes) query.handleError(rowTooLarge())
    },
    handleError(error: Error) {
      query.callback?.()
      done.reject(error)
    },
    handleReadyForQuery() {
      query.callback?.()
      done.resolve(rows.subarray(0, length))
    },
    handleCommandComplete() {},
  }
  return query
}

export async function copyFromText(client: pg.ClientBase, text: string, rows: string): Promise<void> {
  const { from } = await import('pg-copy-streams')
  const stream = client.query(from(text))
  const done = finished(stream)
  done.catch(() => {})
  // In slices, so that the socket's buffer does not hold a copy of the whole page. Of bytes: a slice of the text could end
  // between the two halves of a character.
  const bytes = Buffer.from(rows)
  for (let at = 0; at < bytes.length && !stream.destroyed; at += sliceBytes)
    if (!stream.write(bytes.subarray(at, at + sliceBytes))) await Promise.race([once(stream, 'drain'), done])
  stream.end()
  await done
}

const sliceBytes = 65_536
