/**
 * Appends of all kinds to a few streams, by many callers of two stores whose connections are cut: every answer must be true.
 */
import { isRillflowError } from '../core/errors.ts'
import type { Store } from '../store.ts'
import { type Place, pause, pick, runFor, times } from './place.ts'
import { judgeAppends, recordAppends } from './record-appends.ts'
import type { Checked } from './verify.ts'

const callers = 16
const streams = times(12, at => `order-${at}`)
const event = { type: 'OrderChanged', data: {} }

/** `events`: what stands between the callers and the store, if that is to be wrong. */
export async function checkAppendAnswers(
  place: Place,
  ms: number,
  events: (store: Store) => Pick<Store, 'events'> = store => store,
): Promise<Checked> {
  const { stores, judge, cut } = place
  const records = stores.map((store, at) => recordAppends(events(store), `store ${at + 1}`))
  let count = 0
  const workers = times(callers, at => async (): Promise<void> => {
    const orders = records[at % 2]!
    const [stream, kind] = [pick(streams), Math.floor(Math.random() * 6)]
    const given = times(1 + Math.floor(Math.random() * 3), () => event)
    try {
      const expected = kind < 2 ? (await orders.read(stream)).length : undefined
      const key = kind === 2 ? { idempotencyKey: `key-${++count}` } : {}
      if (kind === 3)
        await orders.appendMany([...new Set([stream, pick(streams)])].map(each => ({ stream: each, events: given })))
      else await orders.append(stream, given, { expected, ...key })
    } catch (error) {
      if (!isRillflowError(error)) throw error
    }
  })
  await runFor(ms, [...workers, async () => pause(200).then(cut)], place)
  const problems = await judgeAppends(judge, records)
  return { operations: records.reduce((sum, { calls, reads }) => sum + calls.length + reads.length, 0), problems }
}
