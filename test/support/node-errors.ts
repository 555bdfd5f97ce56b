/**
 * A pool whose server answers as a cluster does that has the rows on another node: fields of errors are missing, names end
 * in the number of a shard, a duplicate among copied rows is an internal error, `lock_timeout` has no effect, notifications
 * do not arrive, and connections between the nodes are lost while that of the client lives.
 */
import type pg from 'pg'
import type { PgPool } from '../../src/database/postgres/postgres.ts'

export interface NodeErrors {
  readonly pool: PgPool
  /** The next statements with this label are not run: the connection to the node was lost before. */
  loseBefore(label: string, times: number): void
  /** They are run, and the node's answer to the commit is lost. */
  loseCommit(label: string, times: number): void
  readonly lost: () => number
}

interface Query {
  readonly text?: string
}

export function answerAsNode(pool: pg.Pool): NodeErrors {
  const before = new Map<string, number>()
  const commits = new Map<string, number>()
  let lost = 0
  const take = (from: Map<string, number>, text: string): boolean => {
    const label = /\/\* (\S+) \*\//.exec(text)?.[1] ?? ''
    const left = from.get(label) ?? 0
    if (left === 0) return false
    from.set(label, left - 1)
    lost++
    return true
  }
  const answer = async (client: pg.PoolClient, query: Query): Promise<unknown> => {
    const text = query.text ?? ''
    if (text.includes('pg_notify(')) return { rows: [], command: 'SELECT' }
    if (take(before, text)) throw nodeError(lostCodes[lost % lostCodes.length]!, lostMessage)
    const sent = { ...query, text: text.replaceAll('lock_timeout', 'rillflow.lock_timeout') }
    let result: unknown
    try {
      result = await client.query(sent as never)
    } catch (error) {
      throw passedOn(error as Error, text)
    }
    if (take(commits, text))
      throw nodeError('XX000', 'could not commit transaction for shard 102008 on at least one active node')
    return result
  }
  return {
    pool: {
      async connect() {
        const client = await pool.connect()
        return {
          query: (query: object) => answer(client, query) as Promise<{ rows: unknown[]; command: string }>,
          release: error => client.release(error),
        }
      },
    },
    loseBefore: (label, times) => void before.set(label, times),
    loseCommit: (label, times) => void commits.set(label, times),
    lost: () => lost,
  }
}

const lostCodes = ['08006', '57P01']
const lostMessage = 'while executing command on 127.0.0.1:6501: server closed the connection unexpectedly'

function nodeError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code })
}

/** An error of the server, as the node of the client passes it on. */
function passedOn(error: Error & { code?: string; detail?: string; constraint?: string }, text: string): Error {
  const message = error.message.replace(/constraint "(.*?)"/, 'constraint "$1_102008"')
  const isCopied = error.code === '23505' && /unnest\(/.test(text)
  return Object.assign(new Error(message), { code: isCopied ? 'XX000' : error.code, detail: error.detail })
}
