/**
 * Verifies a server, with the pooler and the network in front of it: the protocols that the store relies on are tried hard, and
 * judges look at the histories.
 *
 *     sessions ──► rounds, each in a new schema that is dropped ─┬─► ordering       writers that commit late, readers that follow
 *                                                                ├─► appends        callers that race, connections that are cut
 *                                                                └─► transactions   over several streams and documents
 *
 *     place             the schema of a round, with two stores whose connections can be cut
 *     record-…          watch the callers: what they asked for, when, and what they got
 *     check-…           the judges: `check-appends` in linear time, `check-transactions` by circles in the order (`circles`)
 *     wrong-protocols   `selfTest`: each of them has to be found out
 *
 * Guarantees: nothing outside of the schemas of its rounds is touched, and no connection of another client. A problem is
 * reported with the calls that contradict each other. It can show that something is wrong, and never that nothing is.
 *
 * What can fail: the server may be away, or refuse to make a schema; that is thrown. A schema that could not be dropped then is
 * called `rillflow_verify_…`.
 */
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { throwIfAborted } from '../core/abort.ts'
import { checkAppendAnswers } from './appends.ts'
import { checkOrdering } from './ordering.ts'
import { openPlace, type Place, type Server } from './place.ts'
import { checkTransactionOrder } from './transactions.ts'
import { wrongProtocols } from './wrong-protocols.ts'

export interface VerifyOptions extends Server {
  readonly ms: number
  readonly onProgress?: ((passedMs: number) => void) | undefined
}

export interface Verdict {
  readonly isRight: boolean
  readonly rounds: number
  readonly checks: readonly ({ readonly name: string } & Checked)[]
}

export interface Checked {
  /** How many events, calls or transactions were judged. */
  readonly operations: number
  /** Sentences, with the calls that contradict each other; empty if nothing is wrong. */
  readonly problems: readonly string[]
}

/** A round is long enough for races, and short enough for its history to fit into memory. */
const maxRoundMs = 9_000

/** Ends with the first round that finds a problem. */
export async function verify({ ms, onProgress, ...server }: VerifyOptions): Promise<Verdict> {
  const sessions = await checkSessions(server)
  const found = new Map<string, { operations: number; problems: string[] }>()
  const note = (name: string, { operations, problems }: Checked): boolean => {
    const known = found.get(name) ?? { operations: 0, problems: [] }
    found.set(name, { operations: known.operations + operations, problems: [...known.problems, ...problems] })
    return problems.length > 0
  }
  let isOver = note('sessions', sessions)
  let rounds = 0
  for (const began = performance.now(); !isOver; ) {
    throwIfAborted(server.signal)
    const partMs = Math.max(300, Math.min(maxRoundMs, ms) / 3)
    const isStrict = rounds++ % 2 === 1
    await inPlace(server, async place => {
      isOver = note('ordering', await checkOrdering(place, partMs)) || isOver
    })
    await inPlace(server, async place => {
      isOver = note('appends', await checkAppendAnswers(place, partMs)) || isOver
    })
    await inPlace(server, async place => {
      const isolation = isStrict ? 'serializable' : 'read committed'
      isOver = note('transactions', await checkTransactionOrder(place, partMs, isolation)) || isOver
    })
    const passedMs = performance.now() - began
    onProgress?.(passedMs)
    isOver ||= passedMs >= ms
  }
  const checks = [...found].map(([name, checked]) => ({ name, ...checked }))
  return { isRight: checks.every(({ problems }) => problems.length === 0), rounds, checks }
}

export interface SelfTest {
  /** Whether each wrong protocol was found out. */
  readonly isRight: boolean
  readonly protocols: readonly { readonly name: string; readonly problem: string | undefined }[]
}

/** Longer than any wrong protocol has survived, also on a machine that stalls. */
const patienceMs = 60_000

/** Whether `verify` finds out about each wrong protocol, here and now. */
export async function selfTest({
  onProgress,
  ...server
}: Server & {
  readonly onProgress?: ((done: number, all: number) => void) | undefined
}): Promise<SelfTest> {
  const protocols: { name: string; problem: string | undefined }[] = []
  const all = Object.entries(wrongProtocols)
  for (const [name, check] of all) {
    let problem: string | undefined
    for (const began = performance.now(); problem === undefined && performance.now() - began < patienceMs; ) {
      throwIfAborted(server.signal)
      await inPlace(server, async place => {
        problem = (await check(place, 500)).problems[0]
      })
    }
    protocols.push({ name, problem })
    onProgress?.(protocols.length, all.length)
  }
  return { isRight: protocols.every(({ problem }) => problem !== undefined), protocols }
}

async function inPlace(server: Server, run: (place: Place) => Promise<void>): Promise<void> {
  await using place = await openPlace(server, `rillflow_verify_${randomBytes(6).toString('hex')}`)
  await run(place)
}

/** Whether the statements of a transaction share a session, as they do not behind a pooler in statement mode. */
async function checkSessions({ url }: Server): Promise<Checked> {
  const client = new pg.Client({ connectionString: url, application_name: 'rillflow verify' })
  client.on('error', () => {})
  await client.connect()
  const setting = 'rillflow.verify'
  try {
    await client.query('begin')
    await client.query(`select set_config($1::text, 'set', true)`, [setting])
    const { rows } = await client.query('select current_setting($1::text, true) as value', [setting])
    await client.query('commit')
    return {
      operations: 1,
      problems: rows[0]?.value === 'set' ? [] : [notShared('the setting of a transaction was lost in it')],
    }
  } catch (error) {
    return { operations: 1, problems: [notShared(error instanceof Error ? error.message : String(error))] }
  } finally {
    await client.end().catch(() => {})
  }
}

function notShared(reason: string): string {
  return `The statements of a transaction do not share a session (${reason}). Behind a pooler, use its transaction mode or its session mode.`
}
