/**
 * Records all statements sent to a database, at the drivers. Every distinct statement of the library (they begin with a
 * comment that names them) goes to a file of this process, in the folder of the run; the tests in `test/portability` check
 * all of them against the rules of `test/portability/citus.md`.
 *
 *     setupFiles: ['test/support/statement-recording.ts']      globalSetup: ['test/support/statement-recording-setup.ts']
 *
 * A statement that was seen before costs a lookup in a set; on PGlite a prepared one costs nothing.
 */
import { mkdirSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { PGlite } from '@electric-sql/pglite'
import pg from 'pg'

/** All statements sent while `work` ran, of the library or not, in order. */
export async function statementsDuring(work: () => Promise<unknown>): Promise<string[]> {
  const sent: string[] = []
  const listen = (text: string): void => void sent.push(text)
  worker[listeners]!.add(listen)
  try {
    await work()
  } finally {
    worker[listeners]!.delete(listen)
  }
  return sent
}

/** The statements that all processes of this run have recorded so far. */
export function recordedStatements(): string[] {
  const folder = process.env.RILLFLOW_TEST_STATEMENTS!
  const lines = readdirSync(folder).flatMap(name => readFileSync(join(folder, name), 'utf8').split('\n'))
  return [...new Set(lines.filter(line => line !== ''))].map(line => JSON.parse(line) as string)
}

/** The name in the leading comment, which may be inside a COPY. */
export function labelOf(text: string): string | undefined {
  return /^\s*(?:copy \(\s*)?\/\* ([a-z_]+\.[a-z_]+) \*\//.exec(text)?.[1]
}

/** Makes statements comparable between schemas and numbers: schemas become `s1`, `s2` …, numbers 0. */
export function generalised(text: string): string {
  const schemas = new Map<string, string>()
  const named = text.replaceAll(/"(?:[^"]|"")+"(?=\.)/g, schema => {
    if (!schemas.has(schema)) schemas.set(schema, `"s${schemas.size + 1}"`)
    return schemas.get(schema)!
  })
  return named.replaceAll(/(?<![\w$'".])\d+(?![\w'"])/g, '0')
}

const listeners: unique symbol = Symbol.for('rillflow.test.statements') as never
const worker = globalThis as { [listeners]?: Set<(text: string) => void> }

// Once per process: modules are evaluated again for each project, the drivers are not.
if (worker[listeners] === undefined) {
  const own = new Set<(text: string) => void>()
  worker[listeners] = own
  const record = openRecord(process.env.RILLFLOW_TEST_STATEMENTS)
  watchDrivers(text => {
    record(text)
    for (const listen of own) listen(text)
  })
}

/** Emptied at this size: statements that are seen again after that are written again. */
const maxSeen = 5_000

function openRecord(folder: string | undefined): (text: string) => void {
  if (folder === undefined) return () => {}
  mkdirSync(folder, { recursive: true })
  const file = openSync(join(folder, `${process.pid}.ndjson`), 'a')
  const seen = new Set<string>()
  const written = new Set<string>()
  return text => {
    if (seen.has(text)) return
    if (seen.size >= maxSeen) seen.clear()
    seen.add(text)
    if (labelOf(text) === undefined) return
    const statement = generalised(text)
    if (written.has(statement)) return
    written.add(statement)
    // Immediately: some tests end their process.
    writeSync(file, `${JSON.stringify(statement)}\n`)
  }
}

function watchDrivers(onStatement: (text: string) => void): void {
  const client = pg.Client.prototype as { query(this: unknown, ...given: unknown[]): unknown }
  const { query } = client
  client.query = function (first, ...more) {
    // A text, a query or a stream of COPY.
    const text = typeof first === 'string' ? first : (first as { text?: unknown } | undefined)?.text
    if (typeof text === 'string') onStatement(text)
    return query.call(this, first, ...more)
  }
  const { execProtocolRawStream } = PGlite.prototype
  PGlite.prototype.execProtocolRawStream = function (message, options) {
    for (const text of textsIn(message as Buffer)) onStatement(text)
    return execProtocolRawStream.call(this, message, options)
  }
}

/** The statements in a message of the wire protocol: `P` prepares one under a name, `Q` sends one as it is. */
function textsIn(message: Buffer): string[] {
  const texts: string[] = []
  for (let at = 0; at + 5 < message.length; at += 1 + message.readInt32BE(at + 1)) {
    const kind = String.fromCharCode(message[at]!)
    if (kind === 'B') break
    if (kind !== 'P' && kind !== 'Q') continue
    const start = kind === 'P' ? message.indexOf(0, at + 5) + 1 : at + 5
    texts.push(message.toString('utf8', start, message.indexOf(0, start)))
  }
  return texts
}
