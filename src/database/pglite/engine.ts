/**
 * The embedded engine: PGlite with one connection, one statement at a time, on this thread.
 *
 *     statement ─► let the event loop run, if it is time ─► discard plans, if it is time ─► one message ─► one reply
 *
 * - Each call is one message, and runs to its end without leaving the thread. Awaited queries alone starve the event loop
 *   (a 1 ms timer fired 0 times in 1.5 s), so a statement first lets the loop run if that is `turnMs` ago.
 * - Our statements are prepared once per text. Nothing analyzes tables in the background here, so a plan for a small table
 *   would stay when the table has grown. So cached plans, also those inside functions, are discarded once a second, and
 *   new plans are made for the tables' real sizes.
 *
 * Invariant: a call begins after the call before it has ended (`turns.ts`).
 *
 * What can fail: a crash inside the engine, such as an overflow of its stack. The statement fails, the open transaction
 * is gone, and another instance continues with what was committed (`instance.ts`). If that does not start, every later
 * call fails with an error that says so.
 */
import { setImmediate } from 'node:timers'
import { parsers } from '../parse.ts'
import { openPreparedShapes } from '../prepared.ts'
import { identifier, preparedName, type Statement } from '../sql.ts'
import { statementTooComplex } from '../sqlstate.ts'
import { startInstance } from './instance.ts'
import * as wire from './wire.ts'

export interface Engine {
  run(statement: Statement, arrays: boolean): Promise<unknown[]>
  /** A user's statement. It is not prepared. */
  query(text: string, values: readonly unknown[]): Promise<unknown[]>
  /** Runs SQL without parameters or rows, and returns its command tag. */
  command(text: string): Promise<string>
  copyOut(text: string): Promise<Buffer>
  copyIn(text: string, rows: string): Promise<void>
  /** Until the engine stops. */
  listen(channel: string): Promise<void>
  readonly isInTransaction: boolean
  /** How much it has done so far: statements plus kilobytes sent with them. */
  readonly work: number
  stop(): Promise<void>
}

export interface EngineOptions {
  /** Where the data lives; undefined is in memory. */
  dataDir: string | undefined
  /** A tar file to begin with, if there is no data yet. Default: made by `initdb`. */
  image?: Buffer | undefined
  onNotify(channel: string, payload: string): void
}

interface Prepared {
  readonly name: string
  readonly columns: readonly wire.Column[]
}

const turnMs = 5
const replanMs = 1_000
const maxPrepared = 1_000

const discardPlans = wire.query('discard plans')
const deallocateAll = wire.query('deallocate all')
const noCopyData = wire.copyFail('COPY FROM STDIN needs rows: use copyIn')

export async function startEngine({ dataDir, image, onNotify }: EngineOptions): Promise<Engine> {
  const { messages } = await import('@electric-sql/pglite')
  const instance = await startInstance({ dataDir, image, settings: settings(dataDir) })
  const parserOf = (oid: number) => parsers[oid] ?? instance.parserOf(oid)
  const makeError = (message: string, length: number) => new messages.DatabaseError(message, length, 'error')
  const shapes = openPreparedShapes()
  const prepared = new Map<string, Prepared>()
  const channels = new Set<string>()
  let status: wire.Status | undefined = 'I'
  let turnedAt = performance.now()
  let plannedAt = turnedAt
  let hasOutdated = false
  let work = 0

  const send = async (message: readonly Buffer[], arrays = false, columns?: readonly wire.Column[]) => {
    if (status === undefined) throw new Error('The embedded engine has stopped. Close the store and open it again.')
    const bytes = Buffer.concat(message)
    work += 1 + bytes.length / 1000
    const answer = await instance.exchange(bytes).catch(replaceCrashed)
    // First, because a parser may throw.
    status = wire.statusAfter(answer)
    if (status === undefined) return replaceCrashed(new Error('the reply has no end'))
    const reply = wire.decodeReply(answer, { arrays, columns, parserOf, makeError })
    if (!reply.isComplete) return replaceCrashed(new Error('the reply has no result'))
    for (const { channel, payload } of reply.notifications) onNotify(channel, payload)
    return reply
  }

  /** Never returns: the statement that the crash happened in has failed, also if another instance can continue. */
  const replaceCrashed = async (crash: unknown): Promise<never> => {
    status = undefined
    prepared.clear()
    hasOutdated = false
    await instance.replace()
    status = 'I'
    for (const channel of channels) await send([listenTo(channel)])
    throw crashError(crash)
  }

  /** Runs before each statement. */
  const prepare = async (): Promise<void> => {
    const now = performance.now()
    if (now - turnedAt >= turnMs) {
      await new Promise(setImmediate)
      turnedAt = performance.now()
    }
    if (status === 'E') return
    if (hasOutdated) await send([deallocateAll])
    hasOutdated = false
    if (now - plannedAt < replanMs) return
    plannedAt = now
    await send([discardPlans])
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

  const sendUnprepared = (text: string, values: readonly unknown[], arrays: boolean): Promise<wire.Reply> => {
    const opening = [wire.parse('', text), wire.describe(''), wire.bind('', values)]
    return send([...opening, wire.execute, noCopyData, wire.sync], arrays)
  }

  const sendPrepared = async (statement: Statement, arrays: boolean): Promise<wire.Reply> => {
    const known = prepared.get(statement.text)
    const name = known?.name ?? preparedName(statement)
    const message = [wire.bind(name, statement.values), wire.execute, wire.sync]
    if (known !== undefined) return send(message, arrays, known.columns)
    message.unshift(wire.parse(name, statement.text), wire.describe(name))
    const [oldest] = prepared.size < maxPrepared ? [] : prepared
    if (oldest !== undefined && prepared.delete(oldest[0])) message.unshift(wire.close(oldest[1].name))
    const reply = await send(message, arrays).catch(error => {
      // It may be prepared now, although its reply could not be read.
      forgetPrepared()
      throw error
    })
    if (reply.isPrepared) prepared.set(statement.text, { name, columns: reply.columns })
    return reply
  }

  return {
    async run(statement, arrays) {
      await prepare()
      if (!shapes.keeps(statement)) return check(await sendUnprepared(statement.text, statement.values, arrays)).rows
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
      return check(await sendUnprepared(text, values, false)).rows
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
    async listen(channel) {
      await prepare()
      check(await send([listenTo(channel)]))
      channels.add(channel)
    },
    get isInTransaction() {
      return status === 'T' || status === 'E'
    },
    get work() {
      return work
    },
    async stop() {
      status = undefined
      await instance.stop()
    },
  }
}

/** An empty database as a tar file. */
export async function makeImage(): Promise<Buffer> {
  const { PGlite } = await import('@electric-sql/pglite')
  const startParams = [...PGlite.defaultStartParams, ...settings(undefined).flatMap(setting => ['-c', setting])]
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
 *
 * PostgreSQL measures its stack in linear memory, where only a part of each frame is: the stack of WebAssembly, of about
 * 1 MB, is full long before PostgreSQL finds 2 MB used. With its least limit it refuses most statements that are too deep
 * by itself (measured: a search of 6000 words, JSON nested 3000 deep).
 */
function settings(dataDir: string | undefined): string[] {
  return [
    'wal_init_zero=off',
    'min_wal_size=32MB',
    'max_wal_size=128MB',
    'max_stack_depth=100kB',
    `shared_buffers=${dataDir === undefined ? 32 : 64}MB`,
  ]
}

function listenTo(channel: string): Buffer {
  return wire.query(`listen ${identifier(channel).quoted}`)
}

/** As the server would report it: the code of an overflow is the one that PostgreSQL has for it. */
function crashError(crash: unknown): Error {
  const reason = crash instanceof Error ? crash.message : String(crash)
  const isOverflow = /call stack/i.test(reason)
  const message = isOverflow
    ? 'the stack of the embedded engine was full'
    : `the embedded engine crashed (${reason}) and was started again`
  return Object.assign(new Error(message, { cause: crash }), { code: isOverflow ? statementTooComplex : internalError })
}

const internalError = 'XX000'

/** The statement is no longer prepared, or its result has changed. Nothing of it has run. */
function isOutdated(code: string | undefined): boolean {
  return code === '26000' || code === '0A000'
}
