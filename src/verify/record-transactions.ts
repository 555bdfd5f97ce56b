/**
 * Records transactions over streams and documents: what each reads and writes, and its outcome.
 *
 *     const orders = recordTransactions(store, stock, 'process 1')
 *     await orders.transaction('serializable', async work => {
 *       const version = await work.readStream('order-1')
 *       …
 *     })
 *     expect(await judgeTransactions(store, stock, [orders])).toEqual([])
 *
 * The documents are those of a collection with a history, so that every version of them is known in the end. An event names
 * its transaction by its causation id; together with its number there, that is its element.
 */
import type { Documents } from '../documents/documents.ts'
import type { Store } from '../store.ts'
import { instant } from './append-history.ts'
import { checkTransactions } from './check-transactions.ts'
import { readAgain, readLog } from './record-appends.ts'
import type { Operation, RecordedTransaction, TransactionHistory } from './transaction-history.ts'

/** The writer of this version. */
export interface Counted {
  readonly by: string
}

/** One transaction. */
export interface RecordedWork {
  /** The version of the stream. */
  readStream(stream: string): Promise<number>
  /** The version of the document; 0 if there is none. */
  readDocument(id: string): Promise<number>
  /** `expected`: of an earlier read, which is checked then. */
  append(stream: string, events: number, expected?: number): Promise<void>
  put(id: string, expected?: number): Promise<void>
}

export interface TransactionRecorder {
  readonly transactions: readonly RecordedTransaction[]
  /** `store.transaction` at this level of isolation. Resolves when it is committed, rolled back or of unknown outcome. */
  transaction(isolation: Isolation, work: (work: RecordedWork) => Promise<void>): Promise<void>
  /** A session: reads as they are made, writes with the save. */
  session(work: (work: RecordedWork) => Promise<void>): Promise<void>
}

type Isolation = NonNullable<TransactionHistory['isolation']>

const event = { type: 'OrderChanged', data: {} }

/** `name`: different for each recorder of a history. */
export function recordTransactions(store: Store, stock: Documents<Counted>, name: string): TransactionRecorder {
  const transactions: RecordedTransaction[] = []
  let count = 0

  const record = async (run: (own: string, operations: Operation[]) => Promise<void>): Promise<void> => {
    const own = `${name} #${++count}`
    const operations: Operation[] = []
    const began = instant()
    let outcome: RecordedTransaction['outcome'] = 'committed'
    try {
      await run(own, operations)
    } catch (error) {
      outcome = (error as { code?: string }).code === 'outcome_unknown' ? 'unknown' : 'rolled back'
    }
    transactions.push({ name: own, began, ended: instant(), outcome, operations })
  }
  const read = async (
    operations: Operation[],
    object: string,
    look: () => Promise<{ version: number; element: string | undefined }>,
  ): Promise<number> => {
    const began = instant()
    const { version, element } = await look()
    operations.push({ kind: 'read', object, version, element, began, ended: instant() })
    return version
  }
  /** The read of this version is checked by the write that expects it. */
  const check = (operations: Operation[], object: string, expected: number | undefined): void => {
    const at = operations.findLastIndex(each => each.kind === 'read' && each.object === object)
    const found = operations[at]
    if (found?.kind === 'read' && found.version === expected) operations[at] = { ...found, isChecked: true }
  }

  return {
    transactions,
    transaction: (isolation, work) =>
      record((own, operations) =>
        store.transaction(
          tx =>
            work({
              readStream: stream =>
                read(operations, stream, async () => lastOf(await store.events.read(stream, { tx }).toArray())),
              readDocument: id =>
                read(operations, documentName(id), async () => {
                  const found = await stock.get(id, { tx })
                  return { version: found?.version ?? 0, element: found?.data.by }
                }),
              async append(stream, events, expected) {
                await store.events.append(stream, times(events), { tx, expected, causationId: own })
                check(operations, stream, expected)
                writeEvents(operations, own, stream, events)
              },
              async put(id, expected) {
                const by = `${own}.${operations.length}`
                await stock.put(id, { by }, { tx, expected })
                check(operations, documentName(id), expected)
                writes(operations, documentName(id), [by])
              },
            }),
          { isolation },
        ),
      ),
    session: work =>
      record(async (own, operations) => {
        const session = store.session({ causationId: own })
        await work({
          readStream: stream => read(operations, stream, async () => lastOf(await store.events.read(stream).toArray())),
          readDocument: id =>
            read(operations, documentName(id), async () => {
              const found = await session.documents(stock).load(id)
              return { version: found?.version ?? 0, element: found?.data.by }
            }),
          async append(stream, events, expected) {
            session.events.append(stream, times(events), { expected })
            check(operations, stream, expected)
            writeEvents(operations, own, stream, events)
          },
          async put(id, expected) {
            const by = `${own}.${operations.length}`
            session.documents(stock).put(id, { by }, expected === undefined ? { upsert: true } : { expected })
            check(operations, documentName(id), expected)
            writes(operations, documentName(id), [by])
          },
        })
        await session.save()
      }),
  }
}

function times(count: number): (typeof event)[] {
  return Array.from({ length: count }, () => event)
}

function elementOf(transaction: string, stream: string, number: number): string {
  return `${transaction}, event ${number} of ${stream}`
}

function writes(operations: Operation[], object: string, elements: readonly string[]): void {
  for (const element of elements) operations.push({ kind: 'write', object, element })
}

function writeEvents(operations: Operation[], own: string, stream: string, count: number): void {
  const before = operations.filter(each => each.kind === 'write' && each.object === stream).length
  writes(
    operations,
    stream,
    times(count).map((_, at) => elementOf(own, stream, before + at + 1)),
  )
}

/** The element of the last event of a stream, and its version. */
function lastOf(events: readonly { readonly stream: string; readonly causationId?: string | undefined }[]) {
  const last = events.at(-1)
  const number = events.filter(({ causationId }) => causationId === last?.causationId).length
  return { version: events.length, element: last && elementOf(last.causationId ?? '', last.stream, number) }
}

function documentName(id: string): string {
  return `stock/${id}`
}

/** The faults in the history of these transactions, compared with the streams and documents as they are now. */
export async function judgeTransactions(
  store: Store,
  stock: Documents<Counted>,
  records: readonly TransactionRecorder[],
  isolation: Isolation = 'read committed',
): Promise<string[]> {
  const transactions = records.flatMap(record => record.transactions)
  const objects = new Map<string, string[]>()
  const numbers = new Map<string, number>()
  for (const { stream, call = '' } of await readLog(store)) {
    const own = `${call} ${stream}`
    const number = (numbers.get(own) ?? 0) + 1
    numbers.set(own, number)
    const elements = objects.get(stream) ?? []
    elements.push(elementOf(call, stream, number))
    objects.set(stream, elements)
  }
  const wanted = transactions.flatMap(({ operations }) => operations.map(({ object }) => object))
  for (const object of new Set(wanted.filter(each => each.startsWith('stock/'))))
    objects.set(object, await versionsOf(stock, object.slice('stock/'.length)))
  return checkTransactions({ transactions, objects, isolation })
}

async function versionsOf(stock: Documents<Counted>, id: string): Promise<string[]> {
  const elements: string[] = []
  for (let after: string | undefined; ; ) {
    const page = await readAgain(() => stock.history(id, { limit: 1_000, after }))
    for (const { data } of page.items) elements.push(data!.by)
    if (page.next === undefined) return elements
    after = page.next
  }
}
