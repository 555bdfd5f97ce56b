/**
 * What the engine answers, decoded: rows straight into values, and everything else that may come with them.
 */
import type { messages } from '@electric-sql/pglite'

/** One column of a result: its name, and how its text becomes a value. */
export interface Column {
  readonly name: string
  readonly parse: ((text: string) => unknown) | undefined
}

/** Where a message leaves the connection: idle, in a transaction, in a failed one. */
export type Status = 'I' | 'T' | 'E'

/** All that came back for one message. */
export interface Reply {
  columns: readonly Column[]
  readonly rows: unknown[]
  /** The command tag of the last statement, e.g. `INSERT 0 1`. */
  tag: string
  isPrepared: boolean
  error: messages.DatabaseError | undefined
  readonly notifications: { readonly channel: string; readonly payload: string }[]
  readonly copied: Buffer[]
}

export interface Decoding {
  readonly columns?: readonly Column[] | undefined
  readonly arrays: boolean
  parserOf(oid: number): ((text: string) => unknown) | undefined
  makeError(message: string, length: number): messages.DatabaseError
}

/** A complete answer ends with it; an engine that died says nothing more. */
export function statusAfter(bytes: Buffer): Status | undefined {
  const isReady = bytes.length >= 6 && bytes[bytes.length - 6] === 0x5a && bytes.readInt32BE(bytes.length - 5) === 5
  return isReady ? (bytes.toString('latin1', bytes.length - 1) as Status) : undefined
}

export function decodeReply(bytes: Buffer, decoding: Decoding): Reply {
  const reply: Reply = {
    columns: decoding.columns ?? [],
    rows: [],
    tag: '',
    isPrepared: false,
    error: undefined,
    notifications: [],
    copied: [],
  }
  let end: number
  for (let at = 0; at < bytes.length; at = end) {
    const body = at + 5
    end = at + 1 + bytes.readInt32BE(at + 1)
    switch (bytes[at]) {
      case 0x44: // D, a row
        reply.rows.push(decoding.arrays ? arrayAt(bytes, body, reply.columns) : objectAt(bytes, body, reply.columns))
        break
      case 0x54: // T, the columns
        reply.columns = columnsAt(bytes, body, decoding)
        break
      case 0x6e: // n, no columns
        reply.columns = []
        break
      case 0x43: // C, a statement is complete
        reply.tag = bytes.toString('latin1', body, end - 1)
        break
      case 0x45: // E, the first error is the cause of any further one
        reply.error ??= errorAt(bytes, body, end, decoding)
        break
      case 0x31: // 1, parsed
        reply.isPrepared = true
        break
      case 0x41: // A, a notification
        reply.notifications.push(notificationAt(bytes, body))
        break
      case 0x64: // d, a piece of a COPY
        reply.copied.push(bytes.subarray(body, end))
        break
    }
  }
  return reply
}

function arrayAt(bytes: Buffer, body: number, columns: readonly Column[]): unknown[] {
  const row = new Array<unknown>(columns.length)
  let at = body + 2
  for (let i = 0; i < columns.length; i++) {
    const length = bytes.readInt32BE(at)
    at += 4
    row[i] = length < 0 ? null : valueAt(bytes, at, at + length, columns[i]!)
    if (length > 0) at += length
  }
  return row
}

function objectAt(bytes: Buffer, body: number, columns: readonly Column[]): Record<string, unknown> {
  const row: Record<string, unknown> = {}
  let at = body + 2
  for (const column of columns) {
    const length = bytes.readInt32BE(at)
    at += 4
    row[column.name] = length < 0 ? null : valueAt(bytes, at, at + length, column)
    if (length > 0) at += length
  }
  return row
}

function valueAt(bytes: Buffer, start: number, end: number, column: Column): unknown {
  const text = bytes.toString('utf8', start, end)
  return column.parse === undefined ? text : column.parse(text)
}

function columnsAt(bytes: Buffer, body: number, decoding: Decoding): Column[] {
  const columns: Column[] = []
  let at = body + 2
  for (let left = bytes.readInt16BE(body); left > 0; left--) {
    const nameEnd = bytes.indexOf(0, at)
    // After the name: table (4), column number (2), type (4), size (2), modifier (4), format (2).
    columns.push({
      name: bytes.toString('utf8', at, nameEnd),
      parse: decoding.parserOf(bytes.readUInt32BE(nameEnd + 7)),
    })
    at = nameEnd + 19
  }
  return columns
}

function notificationAt(bytes: Buffer, body: number): { channel: string; payload: string } {
  const channelEnd = bytes.indexOf(0, body + 4)
  const payloadEnd = bytes.indexOf(0, channelEnd + 1)
  return {
    channel: bytes.toString('utf8', body + 4, channelEnd),
    payload: bytes.toString('utf8', channelEnd + 1, payloadEnd),
  }
}

const errorFields = {
  S: 'severity',
  C: 'code',
  D: 'detail',
  H: 'hint',
  P: 'position',
  p: 'internalPosition',
  q: 'internalQuery',
  W: 'where',
  s: 'schema',
  t: 'table',
  c: 'column',
  d: 'dataType',
  n: 'constraint',
  F: 'file',
  L: 'line',
  R: 'routine',
} as const

function errorAt(bytes: Buffer, body: number, end: number, decoding: Decoding): messages.DatabaseError {
  const fields = new Map<string, string>()
  let at = body
  while (at < end && bytes[at] !== 0) {
    const fieldEnd = bytes.indexOf(0, at + 1)
    fields.set(String.fromCharCode(bytes[at]!), bytes.toString('utf8', at + 1, fieldEnd))
    at = fieldEnd + 1
  }
  const error = decoding.makeError(fields.get('M') ?? 'unknown error', end - body)
  for (const [letter, field] of Object.entries(errorFields)) error[field] = fields.get(letter)
  return error
}
