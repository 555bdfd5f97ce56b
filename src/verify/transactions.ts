/**
 * Transactions and sessions over several streams and documents: what they have read and written fits one order.
 */
import { type Place, pick, runFor, times } from './place.ts'
import { judgeTransactions, type RecordedWork, recordTransactions } from './record-transactions.ts'
import type { TransactionHistory } from './transaction-history.ts'
import type { Checked } from './verify.ts'

type Isolation = NonNullable<TransactionHistory['isolation']>

const streams = ['order-1', 'order-2', 'order-3']
const items = ['pen', 'ink', 'cup']

/** `judgedAs`: the level that the history is held against; default that of the transactions. */
export async function checkTransactionOrder(
  place: Place,
  ms: number,
  isolation: Isolation,
  judgedAs: Isolation = isolation,
): Promise<Checked> {
  const { stores, judge, stocks } = place
  const records = stores.map((store, at) => recordTransactions(store, stocks[at + 1]!, `store ${at + 1}`))
  // Every document and every stream has a first version.
  await records[0]!.session(async work => {
    for (const item of items) await work.put(item)
    for (const stream of streams) await work.append(stream, 1)
  })
  const workers = times(8, at => async (): Promise<void> => {
    const record = records[at % 2]!
    const isSession = isolation === 'read committed' && judgedAs === isolation && Math.random() < 0.5
    if (isSession) await record.session(changeBoth)
    else await record.transaction(isolation, Math.random() < 0.5 && judgedAs === isolation ? changeBoth : changeOne)
  })
  await runFor(ms, workers, place)
  const problems = await judgeTransactions(judge, stocks[0]!, records, judgedAs)
  return { operations: records.reduce((sum, { transactions }) => sum + transactions.length, 0), problems }
}

/** With the versions that it has read. */
async function changeBoth(work: RecordedWork): Promise<void> {
  const [stream, item] = [pick(streams), pick(items)]
  const [version, stored] = [await work.readStream(stream), await work.readDocument(item)]
  await work.append(stream, 1, version)
  await work.put(item, stored)
}

/** Reads two things and writes one of them: a write skew, unless the level of isolation prevents it. */
async function changeOne(work: RecordedWork): Promise<void> {
  const [stream, item] = [pick(streams), pick(items)]
  await work.readStream(stream)
  await work.readDocument(item)
  if (Math.random() < 0.5) await work.append(stream, 1)
  else await work.put(item)
}
