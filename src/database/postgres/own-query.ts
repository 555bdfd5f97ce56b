/**
 * A statement of ours, as the driver sends it: the extended protocol without the driver's promises, copies and result
 * objects. It carries only values that our statements usually have; any other one takes the driver's own way.
 *
 * - The result of a prepared statement is described once per connection. The server refuses a prepared statement whose
 *   columns have changed, so the description holds as long as the name.
 * - Texts that PostgreSQL cannot store are refused before anything is sent.
 */
import type pg from 'pg'
import { InvalidText } from '../errors.ts'
import { ownParser } from '../parse.ts'
import type { PreparedShapes } from '../prepared.ts'
import { preparedName, type Statement } from '../sql.ts'
import { textFaultOf } from '../storable.ts'

export interface QueryEnd {
  done(rows: unknown[]): void
  failed(error: Error): void
}

/** The values as the server takes them; undefined if one of them is not of a usual kind. */
export function textsOf({ label, text, values }: Statement): (string | null)[] | undefined {
  // Names that callers chose are quoted in the text itself.
  const inText = textFaultOf(text)
  if (inText !== undefined) throw new InvalidText({ statement: label, parameter: 0, reason: inText })
  const texts = new Array<string | null>(values.length)
  for (let at = 0; at < values.length; at++) {
    const value = values[at]
    const sent = typeof value === 'string' ? value : textOf(value)
    if (sent === undefined) return undefined
    texts[at] = sent
    if (sent === null || typeof value === 'number' || typeof value === 'boolean') continue
    const fault = textFaultOf(sent)
    if (fault !== undefined) throw new InvalidText({ statement: label, parameter: at + 1, reason: fault })
  }
  return texts
}

function textOf(value: unknown): string | null | undefined {
  if (value === null || value === undefined) return null
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  return Array.isArray(value) ? arrayText(value) : undefined
}

/** The text form of an array of one dimension. */
function arrayText(items: readonly unknown[]): string | undefined {
  let text = '{'
  for (let at = 0; at < items.length; at++) {
    const item = items[at]
    if (at > 0) text += ','
    if (item === null || item === undefined) text += 'NULL'
    else if (typeof item === 'string') text += quoted(item)
    else if (typeof item === 'number' || typeof item === 'boolean') text += String(item)
    else return undefined
  }
  return `${text}}`
}

function quoted(item: string): string {
  return special.test(item) ? `"${item.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"` : `"${item}"`
}

const special = /["\\]/

/** A query object of the driver: it calls `submit`, then one of the others for each message of the server. */
export class OwnQuery {
  readonly text: string
  readonly name: string | undefined
  readonly callback: () => void = ignore
  #values: readonly (string | null)[]
  #isArrays: boolean
  #end: QueryEnd | undefined
  #columns: Columns | undefined
  #rows: unknown[] = []
  #fault: Error | undefined

  constructor(
    statement: Statement,
    values: readonly (string | null)[],
    { shapes, arrays, end }: { shapes: PreparedShapes | undefined; arrays: boolean; end: QueryEnd },
  ) {
    this.text = statement.text
    this.name = shapes?.keeps(statement) === true ? preparedName(statement) : undefined
    this.#values = values
    this.#isArrays = arrays
    this.#end = end
  }

  /** Its answer is awaited no longer. */
  abandon(): void {
    this.#end = undefined
  }

  submit(connection: DriverConnection): void {
    const { name, text } = this
    const known = name === undefined ? undefined : describedBy(connection)
    const isParsed = name !== undefined && connection.parsedStatements[name] !== undefined
    connection.stream.cork()
    try {
      if (!isParsed) {
        if (name !== undefined) known!.delete(name)
        connection.parse(name === undefined ? { text } : { text, name })
      }
      connection.bind(name === undefined ? { values: this.#values } : { statement: name, values: this.#values })
      this.#columns = name === undefined ? undefined : known!.get(name)
      if (this.#columns === undefined) connection.describe({ type: 'P', name: '' })
      connection.execute({})
      connection.sync()
    } finally {
      connection.stream.uncork()
    }
  }

  handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }): void {
    this.#columns = {
      names: fields.map(({ name }) => name),
      parsers: fields.map(({ dataTypeID }) => ownParser(dataTypeID)),
    }
  }

  handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
    if (this.#end === undefined || this.#fault !== undefined) return
    try {
      this.#rows.push(this.#isArrays ? rowOf(fields, this.#columns!) : objectOf(fields, this.#columns!))
    } catch (error) {
      this.#fault = error as Error
    }
  }

  handleCommandComplete(_message: unknown, connection: DriverConnection): void {
    if (this.name !== undefined) describedBy(connection).set(this.name, this.#columns ?? noColumns)
  }

  handleReadyForQuery(): void {
    const end = this.#end
    this.#end = undefined
    if (this.#fault === undefined) end?.done(this.#rows)
    else end?.failed(this.#fault)
  }

  /** From the server, or because the connection is lost. */
  handleError(error: Error): void {
    const end = this.#end
    this.#end = undefined
    end?.failed(error)
  }

  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
  handleCopyData(): void {}

  handleCopyInResponse(connection: DriverConnection): void {
    connection.sendCopyFail('No source stream defined')
  }
}

/** Sends it on a connection that is not pipelined. */
export function submitOn(client: pg.PoolClient, query: OwnQuery): void {
  client.query(query as unknown as pg.Submittable)
}

/** The parts of a driver's connection that a query object uses. */
interface DriverConnection {
  readonly stream: { cork(): void; uncork(): void }
  readonly parsedStatements: Readonly<Record<string, string | undefined>>
  parse(message: { text: string; name?: string }): void
  bind(message: { statement?: string; values: readonly (string | null)[] }): void
  describe(message: { type: 'P'; name: string }): void
  execute(message: object): void
  sync(): void
  sendCopyFail(reason: string): void
}

interface Columns {
  readonly names: readonly string[]
  readonly parsers: readonly ((text: string) => unknown)[]
}

/** Of a statement without rows. */
const noColumns: Columns = { names: [], parsers: [] }

const described = new WeakMap<DriverConnection, Map<string, Columns>>()

/** The columns of each prepared statement of a connection. */
function describedBy(connection: DriverConnection): Map<string, Columns> {
  let known = described.get(connection)
  if (known === undefined) {
    known = new Map()
    described.set(connection, known)
  }
  return known
}

function rowOf(fields: readonly (string | null)[], { parsers }: Columns): unknown[] {
  const row = new Array<unknown>(fields.length)
  for (let at = 0; at < fields.length; at++) {
    const text = fields[at]!
    row[at] = text === null ? null : parsers[at]!(text)
  }
  return row
}

function objectOf(fields: readonly (string | null)[], { names, parsers }: Columns): object {
  const row: Record<string, unknown> = {}
  for (let at = 0; at < fields.length; at++) {
    const text = fields[at]!
    row[names[at]!] = text === null ? null : parsers[at]!(text)
  }
  return row
}

function ignore(): void {}
