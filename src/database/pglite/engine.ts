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
 * What can fail: a crash inside the engine, such as an overflow of its stack. The statement fails, the open transaction
 * is gone, and another instance continues with what was committed (`instance.ts`). If that does not start, every later
 * call fails with an error that says so.
 */
import { setImmediate } from 'node:timers'
import { parsers } from '../parse.ts'
import { openPreparedShapes } from '../prepared.ts'
import { identifier, preparedName, type Statement } from '../sql.ts'
import { refuseUnstorable } from '../storable.ts'
import { EngineCrash } from './instance.ts'
import * as wire from './wire.ts'

/** The way to PGlite. */
export interface Link {
  /** Sends one message, and returns the whole reply. Rejects with `EngineCrash` if PGlite crashed and was replaced. */
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
  /** Until the engine stops. */
  listen(channel: string): Promise<void>
  readonly isInTransaction: boolean
  stop(): Promise<void>
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
  const shapes = openPreparedShapes()
  const prepared = new Map<string, Prepared>()
  const channels = new Set<string>()
  let status: wire.Status | undefined = 'I'
  let turnedAt = performance.now()
  let plannedAt = turnedAt
  let hasOutdated = false
  let generation = 0
  let hasDeallocated = false
  let mustListen = false

  const send = async (message: readonly Buffer[], arrays = false, columns?: readonly wire.Column[]) => {
    if (status === undefined) throw new Error('The embedded engine has stopped. Close the store and open it again.')
    const answer = await link.exchange(Buffer.concat(message)).catch(afterCrash)
    // First, because a parser may throw.
    status = wire.statusAfter(answer)
    if (status === undefined) throw new Error('The reply of the embedded engine has no end.')
    const reply = wire.decodeReply(answer, { arrays, columns, parserOf, makeError })
    for (const { channel, payload } of reply.notifications) onNotify(channel, payload)
    return reply
  }

  /** Never returns: the statement has failed. Another instance continues, which knows no prepared statement. */
  const afterCrash = (error: unknown): never => {
    if (error instanceof EngineCrash) {
      prepared.clear()
      ;[status, hasOutdated, hasDeallocated, mustListen] = ['I', false, true, channels.size > 0]
    }
    throw error
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
    if (mustListen && status === 'I') {
      mustListen = false
      for (const channel of channels) await send([listenTo(channel)])
    }
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

  const sendUnprepared = (text: string, values: readonly unknown[], arrays: boolean): Promise<wire.Reply> => {
    const opening = [wire.parse('', text), wire.describe(''), wire.bind('', values)]
    return send([...opening, wire.execute, noCopyData, wire.sync], arrays)
  }

  const sendPrepared = async (statement: Statement, arrays: boolean): Promise<wire.Reply> => {
    const known = prepared.get(statement.text)
    const name = known?.name ?? `${link.prefix}${preparedName(statement)}`
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

  const closeTurn = (): number => {
    if (hasDeallocated) generation++
    hasDeallocated = false
    return generation
  }

  return {
    startTurn(present) {
      if (present === generation) return
      generation = present
      prepared.clear()
      // The other engine may have replaced a crashed instance, which had listened.
      mustListen = channels.size > 0
    },
    endTurn: () => (hasOutdated && status === 'I' ? deallocate().then(closeTurn) : closeTurn()),
    async run(statement, arrays) {
      refuseUnstorable(statement.label, statement.text, statement.values)
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
      refuseUnstorable('a query', text, values)
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
    async stop() {
      status = undefined
      await link.stop()
    },
  }
}

function listenTo(channel: string): Buffer {
  return wire.query(`listen ${identifier(channel).quoted}`)
}

/** The statement is no longer prepared, or its result has changed. Nothing of it has run. */
function isOutdated(code: string | undefined): boolean {
  return code === '26000' || code === '0A000'
}
