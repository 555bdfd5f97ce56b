/**
 * The embedded engine: PGlite with one connection, one statement at a time, on the thread of the process that has it.
 *
 *     statement ─► let the event loop run, if it is time ─► discard plans, if it is time ─► one message ─► one reply
 *
 * The messages go over a link: to PGlite in this process, or to the process that has the folder open (`guest.ts`). Each
 * process has an engine of its own over the one connection, with names of its own for prepared statements.
 *
 * - Each call is one message, and runs to its end without leaving the thread. Awaited queries alone starve the event loop
 *   (a 1 ms timer fired 0 times in 1.5 s), so a statement first lets the loop run if that is `turnMs` ago.
 * - Our statements are prepared once per text. Nothing analyzes tables in the background here, so a plan for a small table
 *   would stay when the table has grown. So cached plans, also those inside functions, are discarded once a second, and
 *   new plans are made for the tables' real sizes.
 *
 * Invariant: a call begins after the call before it has ended (`turns.ts`).
 *
 * What can fail: a crash inside the engine ends it, and every later call fails with an error that says so.
 */
import { setImmediate } from 'node:timers'
import type { PGlite } from '@electric-sql/pglite'
import { parsers } from '../parse.ts'
import { preparedName, type Statement } from '../sql.ts'
import { refuseWithoutFiles, startError } from './engine-files.ts'
import * as wire from './wire.ts'

/** The way to PGlite. */
export interface Link {
  /** Sends one message, and returns the whole reply. */
  exchange(message: Buffer): Promise<Buffer>
  /** Begins the names of prepared statements, so that processes do not use those of each other. */
  readonly prefix: string
  /** How much PGlite has done so far: messages plus kilobytes. */
  readonly work: number
  /** Parses values of a type. Without it the engine reads which types there are. */
  parserOf?(oid: number): ((text: string) => unknown) | undefined
  stop(): Promise<void>
}

export interface Engine {
  /**
   * Begins the engine's turn. A changed `generation` says that another engine has deallocated all prepared statements
   * since the last turn of this one.
   */
  startTurn(generation: number): void
  /** Ends the turn, and returns the generation of prepared statements after it. */
  endTurn(): number | Promise<number>
  run(statement: Statement, arrays: boolean): Promise<unknown[]>
  /** A user's statement. It is not prepared. */
  query(text: string, values: readonly unknown[]): Promise<unknown[]>
  /** Runs SQL without parameters or rows, and returns its command tag. */
  command(text: string): Promise<string>
  copyOut(text: string): Promise<Buffer>
  copyIn(text: string, rows: string): Promise<void>
  readonly isInTransaction: boolean
  stop(): Promise<void>
}

export interface PgliteData {
  /** Where the data lives; undefined is in memory. */
  dataDir: string | undefined
  /** A tar file to begin with, if there is no data yet. Default: made by `initdb`. */
  image?: Buffer | undefined
}

interface Prepared {
  readonly name: string
  readonly columns: readonly wire.Column[]
}

const turnMs = 5
const replanMs = 1_000
const maxPrepared = 1_000

const selectArrays = wire.query('select typarray, oid from pg_catalog.pg_type where typarray <> 0')
const discardPlans = wire.query('discard plans')
const deallocateAll = wire.query('deallocate all')
const noCopyData = wire.copyFail('COPY FROM STDIN needs rows: use copyIn')

/** Starts PGlite in this process. */
export async function startPglite({ dataDir, image }: PgliteData): Promise<Link> {
  const { PGlite } = await import('@electric-sql/pglite')
  await refuseWithoutFiles(PGlite)
  const pglite = await PGlite.create({
    ...(dataDir === undefined ? {} : { dataDir: `file://${dataDir}` }),
    ...(image === undefined ? {} : { loadDataDir: new Blob([image], { type: 'application/x-tar' }) }),
    startParams: [...PGlite.defaultStartParams, ...settings(dataDir)],
  }).catch((error: unknown) => {
    throw startError(error)
  })
  let work = 0
  return {
    exchange(message) {
      work += 1 + message.length / 1000
      return exchange(pglite, message)
    },
    prefix: '',
    get work() {
      return work
    },
    parserOf: oid => pglite.parsers[oid] as wire.Column['parse'],
    stop: () => pglite.close(),
  }
}

export async function openEngine(link: Link, onNotify: (channel: string, payload: string) => void): Promise<Engine> {
  const { messages, types } = await import('@electric-sql/pglite')
  const elements = new Map<number, number>()
  let hasElements = link.parserOf !== undefined
  const elementParser = (oid: number): wire.Column['parse'] =>
    parsers[oid] ?? link.parserOf?.(oid) ?? (types.parsers[oid] as wire.Column['parse'])
  const parserOf = (oid: number): wire.Column['parse'] => {
    const element = elements.get(oid)
    if (parsers[oid] !== undefined || element === undefined) return elementParser(oid)
    return text => types.arrayParser(text, elementParser(element) ?? String, oid)
  }
  const makeError = (message: string, length: number) => new messages.DatabaseError(message, length, 'error')
  const prepared = new Map<string, Prepared>()
  let status: wire.Status | undefined = 'I'
  let turnedAt = performance.now()
  let plannedAt = turnedAt
  let hasOutdated = false
  let generation = 0
  let hasDeallocated = false

  const send = async (message: readonly Buffer[], arrays = false, columns?: readonly wire.Column[]) => {
    if (status === undefined) throw new Error('The embedded engine has stopped. Close the store and open it again.')
    const answer = await link.exchange(Buffer.concat(message))
    // First, because a parser may throw.
    status = wire.statusAfter(answer)
    if (status === undefined)
      throw new Error('The embedded engine stopped in the middle of a statement. Close the store and open it again.')
    const reply = wire.decodeReply(answer, { arrays, columns, parserOf, makeError })
    for (const { channel, payload } of reply.notifications) onNotify(channel, payload)
    return reply
  }

  /** Runs before each statement. */
  const prepare = async (): Promise<void> => {
    const now = performance.now()
    if (now - turnedAt >= turnMs) {
      await new Promise(setImmediate)
      turnedAt = performance.now()
    }
    if (status === 'E') return
    if (!hasElements) {
      hasElements = true
      for (const [array, element] of (await send([selectArrays], true)).rows as [number, number][])
        elements.set(array, element)
    }
    if (hasOutdated) await deallocate()
    if (now - plannedAt < replanMs) return
    plannedAt = now
    await send([discardPlans])
  }

  const deallocate = async (): Promise<void> => {
    await send([deallocateAll])
    hasOutdated = false
    hasDeallocated = true
  }

  const forgetPrepared = (): void => {
    prepared.clear()
    hasOutdated = true
  }

  const check = (reply: wire.Reply): wire.Reply => {
    // These commands can change the result of a prepared statement, or remove it.
    if (/^(ALTER|DROP|DISCARD|DEALLOCATE)/.test(reply.tag)) forgetPrepared()
    if (reply.error !== undefined) throw reply.error
    return reply
  }

  const sendPrepared = async (statement: Statement, arrays: boolean): Promise<wire.Reply> => {
    const known = prepared.get(statement.text)
    const name = known?.name ?? `${link.prefix}${preparedName(statement)}`
    const message = [wire.bind(name, statement.values), wire.execute, wire.sync]
    if (known !== undefined) return send(message, arrays, known.columns)
    message.unshift(wire.parse(name, statement.text), wire.describe(name))
    const [oldest] = prepared.size < maxPrepared ? [] : prepared
    if (oldest !== undefined && prepared.delete(oldest[0])) message.unshift(wire.close(oldest[1].name))
    const reply = await send(message, arrays)
    if (reply.isPrepared) prepared.set(statement.text, { name, columns: reply.columns })
    return reply
  }

  const closeTurn = (): number => {
    if (hasDeallocated) generation++
    hasDeallocated = false
    return generation
  }

  return {
    startTurn(present) {
      if (present !== generation) prepared.clear()
      generation = present
    },
    endTurn: () => (hasOutdated && status === 'I' ? deallocate().then(closeTurn) : closeTurn()),
    async run(statement, arrays) {
      await prepare()
      const wasIdle = status === 'I'
      const reply = await sendPrepared(statement, arrays)
      if (!isOutdated(reply.error?.code)) return check(reply).rows
      forgetPrepared()
      if (!wasIdle) return check(reply).rows
      await prepare()
      return check(await sendPrepared(statement, arrays)).rows
    },
    async query(text, values) {
      await prepare()
      const opening = [wire.parse('', text), wire.describe(''), wire.bind('', values)]
      return check(await send([...opening, wire.execute, noCopyData, wire.sync])).rows
    },
    async command(text) {
      await prepare()
      return check(await send([wire.query(text)])).tag
    },
    async copyOut(text) {
      await prepare()
      return Buffer.concat(check(await send([wire.query(text)])).copied)
    },
    async copyIn(text, rows) {
      await prepare()
      check(await send([wire.query(text), wire.copyData(rows), wire.copyDone]))
    },
    get isInTransaction() {
      return status === 'T' || status === 'E'
    },
    async stop() {
      status = undefined
      await link.stop()
    },
  }
}

/** An empty database as a tar file. */
export async function makeImage(): Promise<Buffer> {
  const { PGlite } = await import('@electric-sql/pglite')
  const startParams = [...PGlite.defaultStartParams, ...settings(undefined)]
  await refuseWithoutFiles(PGlite)
  const pglite = await PGlite.create({ startParams })
  try {
    // So that an engine which starts from it has next to nothing to recover.
    await pglite.exec('checkpoint')
    return Buffer.from(await (await pglite.dumpDataDir('none')).arrayBuffer())
  } finally {
    await pglite.close()
  }
}

/**
 * A new segment of the write-ahead log is not filled with zeros first: that stopped the thread for 60–100 ms, once per
 * 20,000 events. Freed segments are kept up to `max_wal_size`; `vacuum.ts` decides when they are freed.
 *
 * Buffers are zeroed at every start. With 64 MB instead of 128 an engine starts with 215 ms of a core instead of 300, and
 * reads and appends of 51,000 events in 5000 streams cost the same; with 32 MB it starts with 180, but reading them all,
 * which then means reading files, takes twice as long. In memory there are no files.
 */
function settings(dataDir: string | undefined): string[] {
  const given = [
    'wal_init_zero=off',
    'min_wal_size=32MB',
    'max_wal_size=128MB',
    `shared_buffers=${dataDir === undefined ? 32 : 64}MB`,
  ]
  return given.flatMap(setting => ['-c', setting])
}

async function exchange(pglite: PGlite, message: Buffer): Promise<Buffer> {
  const chunks: Buffer[] = []
  // Neither file system needs the sync that PGlite does after each statement: both write at once.
  const onRawData = (bytes: Uint8Array): void => void chunks.push(Buffer.from(bytes))
  await pglite.execProtocolRawStream(message, { syncToFs: false, onRawData }).catch(() => {})
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

/** The statement is no longer prepared, or its result has changed. Nothing of it has run. */
function isOutdated(code: string | undefined): boolean {
  return code === '26000' || code === '0A000'
}
