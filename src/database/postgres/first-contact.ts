/**
 * The first contact with a server: everything that would fail later, or give wrong data, is refused here with a sentence.
 *
 *     connect ─► the driver ─► begin: are there transactions? ─► version, recovery, encoding, settings ─► commit
 *
 * A setting that changes the text of values is refused and not changed: a `set` belongs to a session, and behind a pooler
 * the next statement may run in another one.
 */
import type pg from 'pg'
import { InvalidOption } from '../../core/errors.ts'
import { oldestMajor } from '../database.ts'
import { ServerIncompatible, ServerInRecovery, ServerUnsupported, SettingUnsupported } from '../errors.ts'
import { factsStatement, type ServerFacts, whyIncompatible, wrongSettings } from '../settings.ts'
import { type Target, toConnectError } from '../sqlstate.ts'
import { copyToBuffer } from './copy.ts'
import type { Pool } from './pool.ts'
import { send } from './query.ts'

export interface Contact {
  /** The isolation of a statement outside of a transaction. */
  readonly isolation: string
  readonly hasNodes: boolean
}

export async function firstContact(
  pool: Pool,
  { target, isForeign, timeoutMs }: { target: Target; isForeign: boolean; timeoutMs: number },
): Promise<Contact> {
  try {
    return await pool.use(async client => {
      if (isForeign) refuseClient(client)
      const answer = await examine(client, timeoutMs)
      if (isForeign) await tryCopy(client, timeoutMs)
      return answer
    })
  } catch (error) {
    throw toConnectError(error, target)
  }
}

/** In a transaction, so that a pooler without transactions is found now. */
async function examine(client: pg.PoolClient, timeoutMs: number): Promise<Contact> {
  const command = (text: string) => client.query({ text, query_timeout: timeoutMs } as pg.QueryConfig)
  await command('begin')
  const { rows } = await send(client, factsStatement(), { shapes: undefined, arrays: false, timeoutMs })
  await command('rollback')
  const facts = rows?.[0] as ServerFacts | undefined
  if (facts === undefined) throw refusedPool('does not answer a query with its rows')
  const { version, number, standby, isolation } = facts
  const reason = whyIncompatible(facts)
  if (reason !== undefined) throw new ServerIncompatible({ product: facts.product.split(',')[0]!, reason })
  if (number < oldestMajor * 10_000) throw new ServerUnsupported({ version, oldest: oldestMajor })
  if (standby) throw new ServerInRecovery({})
  const [wrong] = wrongSettings(facts)
  if (wrong !== undefined) throw new SettingUnsupported(wrong)
  return { isolation, hasNodes: facts.citus !== null }
}

function refuseClient(client: pg.PoolClient): void {
  if (typeof client?.query !== 'function' || typeof client.release !== 'function')
    throw refusedPool('connects to a client without the methods "query" and "release"')
  // Its COPY ends the process.
  if ('native' in client) throw refusedPool('uses pg-native, which cannot COPY. Use the driver in JavaScript: pg.Pool')
}

/** A client that only passes text on does not run the queries of COPY, and would wait for ever. */
async function tryCopy(client: pg.PoolClient, timeoutMs: number): Promise<void> {
  const limitMs = Math.min(timeoutMs, 5_000)
  const copied = await copyToBuffer(client, 'select 1', limitMs).catch((cause: unknown) => {
    throw refusedPool('connects to a client that cannot COPY. Pass the query object on to the client of pg', cause)
  })
  if (copied.toString() !== '1\n') throw refusedPool('connects to a client that cannot COPY')
}

function refusedPool(reason: string, cause?: unknown): Error {
  return new InvalidOption({ option: 'pool', reason: `The option "pool" ${reason}.` }, cause)
}
