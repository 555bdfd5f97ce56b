/**
 * COPY into our events table on one connection: the fastest way to insert. It checks nothing, locks nothing and writes no
 * streams; positions are counted, not drawn. And COPY out of the table, into a file or into another server.
 */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { finished, pipeline } from 'node:stream/promises'
import type pg from 'pg'
import { from, to } from 'pg-copy-streams'
import { eventId, eventsPerStream, type OrderEvent, orderEvent } from '../workloads/orders.ts'

const chunkRows = 250
const columns = `
  position, version, stream, event_id, type, schema_version, data, headers, correlation_id, causation_id, user_id,
  created_at`
const copyFrom = `copy rillflow.events (${columns}) from stdin`

/** Copies the given chunks in one statement. */
export async function copyIn(client: pg.ClientBase, chunks: Iterable<string>): Promise<void> {
  const stream = client.query(from(copyFrom))
  const done = finished(stream)
  for (const chunk of chunks) if (!stream.write(chunk)) await Promise.race([once(stream, 'drain'), done])
  stream.end()
  await done
}

/** Copies all events of a schema into a file. */
export async function copyToFile(client: pg.ClientBase, schema: string, file: string): Promise<void> {
  await pipeline(client.query(to(`copy ${schema}.events (${columns}) to stdout`)), createWriteStream(file))
}

/** Copies all events of a schema into our table on another server. */
export async function copyAcross(client: pg.ClientBase, schema: string, other: pg.ClientBase): Promise<void> {
  await pipeline(client.query(to(`copy ${schema}.events (${columns}) to stdout`)), other.query(from(copyFrom)))
}

/** Rows in COPY's text format, made on demand until `enough` returns true. */
export function* orderRows(enough: (rows: number) => boolean): Generator<string, void, undefined> {
  const createdAt = new Date().toISOString()
  let stream = ''
  for (let rows = 0; !enough(rows); ) {
    let chunk = ''
    for (let at = 0; at < chunkRows; at++) {
      if (rows % eventsPerStream === 0) stream = randomUUID()
      chunk += copyRow(rows + 1, (rows % eventsPerStream) + 1, stream, orderEvent(rows), createdAt)
      rows++
    }
    yield chunk
  }
}

export function copyRow(
  position: number,
  version: number,
  stream: string,
  { type, data, headers }: OrderEvent,
  createdAt: string,
): string {
  const id = eventId()
  const json = `${escaped(JSON.stringify(data))}\t${escaped(JSON.stringify(headers))}`
  return `${position}\t${version}\t${escaped(stream)}\t${id}\t${escaped(type)}\t1\t${json}\t${id}\t\\N\t\\N\t${createdAt}\n`
}

/** COPY's text format gives these characters a meaning. */
function escaped(text: string): string {
  if (!/[\\\n\r\t]/.test(text)) return text
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('\r', '\\r').replaceAll('\t', '\\t')
}
