/** COPY through `pg-copy-streams`, a page at a time: a page is bounded, and no connection waits for a slow reader. */
import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { maxRowBytes, rowTooLarge, toRillflowError } from '../sqlstate.ts'

export async function copyToBuffer(pool: pg.Pool, text: string): Promise<Buffer> {
  const { to } = await import('pg-copy-streams')
  const client = await pool.connect().catch(error => {
    throw toRillflowError(error, 'copy')
  })
  // The stream fails with the connection. Without a listener the error of the client would end the process.
  client.on('error', ignore)
  try {
    const stream = client.query(to(`copy (${text}) to stdout`, { highWaterMark }))
    const chunks: Buffer[] = []
    let bytes = 0
    stream.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > maxRowBytes) stream.destroy(rowTooLarge())
    })
    await finished(stream)
    client.off('error', ignore)
    client.release()
    return Buffer.concat(chunks)
  } catch (error) {
    client.release(error as Error)
    throw toRillflowError(error, 'copy')
  }
}

const ignore = (): void => {}

/** A page is bounded anyway, and a smaller buffer would make the socket wait. */
const highWaterMark = 1024 * 1024

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
