/**
 * The judge of transactions, after Elle (Kingsbury and Alvaro, 2020): the elements that transactions have read and written
 * give their order, and an order that goes round in a circle is a proof that something is wrong.
 *
 *     T1 ──ww──► T2   T1 wrote a version, T2 the next one          T1 ──rw──► T2   T1 read a version, T2 wrote the next one
 *     T1 ──wr──► T2   T2 read a version that T1 wrote              T1 ──rt──► T2   T1 had ended before T2 began
 *
 * In read committed, a read that is not checked stands alone: it has its own place in the order. All edges then follow the
 * order of the commits, so that no circle is allowed. In serializable the whole transaction has one place.
 *
 * A problem is a sentence, with the edges of a shortest circle.
 */
import { ms } from './append-history.ts'
import { type Edge, findCircles, type Graph } from './circles.ts'
import type { Read, RecordedTransaction, TransactionHistory, Write } from './transaction-history.ts'

/** A transaction, or a read that stands alone. */
interface Place {
  readonly name: string
  readonly began: number
  /** Infinity if it may take effect at any later time. */
  readonly ended: number
  readonly reads: readonly Read[]
  readonly writes: readonly Write[]
}

export function checkTransactions(history: TransactionHistory): string[] {
  const problems: string[] = []
  const writers = findWriters(history, problems)
  for (const transaction of history.transactions) {
    problems.push(...atomicityProblems(transaction, writers))
    for (const operation of transaction.operations)
      if (operation.kind === 'read') problems.push(...readProblems(transaction, operation, history, writers))
  }
  const places = history.transactions.filter(each => isStored(each, writers)).flatMap(each => placesOf(each, history))
  const circles = findCircles(graphOf(places, history))
  return [...problems, ...circles.map(circle => describeCircle(circle, places, history))]
}

/** The transaction and the version of each element in the objects. */
type Writers = ReadonlyMap<
  string,
  { readonly by: RecordedTransaction; readonly object: string; readonly version: number }
>

function findWriters({ transactions, objects }: TransactionHistory, problems: string[]): Writers {
  const byElement = new Map<string, RecordedTransaction>()
  for (const transaction of transactions)
    for (const operation of transaction.operations)
      if (operation.kind === 'write') byElement.set(operation.element, transaction)
  const writers = new Map<string, { by: RecordedTransaction; object: string; version: number }>()
  for (const [object, elements] of objects)
    for (const [at, element] of elements.entries()) {
      const by = byElement.get(element)
      if (by === undefined) problems.push(`version ${at + 1} of ${object} was written by no transaction: ${element}`)
      else if (writers.has(element)) problems.push(`${element} of ${by.name} is written twice`)
      else writers.set(element, { by, object, version: at + 1 })
    }
  return writers
}

function isStored({ outcome, operations }: RecordedTransaction, writers: Writers): boolean {
  if (outcome !== 'unknown') return outcome === 'committed'
  return operations.some(operation => operation.kind === 'write' && writers.has(operation.element))
}

function atomicityProblems({ name, outcome, operations }: RecordedTransaction, writers: Writers): string[] {
  const writes = operations.filter(operation => operation.kind === 'write')
  const missing = writes.filter(({ element, object }) => writers.get(element)?.object !== object)
  if (missing.length === writes.length) {
    const isLost = outcome === 'committed' && writes.length > 0
    return isLost ? [`${name} was committed, and its writes are lost: ${writes[0]!.object}`] : []
  }
  const [lost] = missing
  if (outcome === 'rolled back') return [`${name} was rolled back, and is stored: ${writes[0]!.object}`]
  return lost === undefined ? [] : [`${name} is torn: its write to ${lost.object} is lost, others are stored`]
}

/** A read sees a version that exists in the end, and all that its writer wrote to the object. */
function readProblems(
  reader: RecordedTransaction,
  { object, version, element }: Read,
  { objects }: TransactionHistory,
  writers: Writers,
): string[] {
  const elements = objects.get(object) ?? []
  const seen = elements[version - 1]
  const writer = writers.get(seen ?? '')?.by
  // Its own writes may be rolled back, and others may have that version.
  if (reader.operations.some(each => each.kind === 'write' && each.element === element)) return []
  if (version > 0 && (seen === undefined || (element !== undefined && seen !== element)))
    return [`${reader.name} read version ${version} of ${object} (${element}), which was never committed`]
  const next = writers.get(elements[version] ?? '')?.by
  return writer !== undefined && writer === next && writer !== reader
    ? [`${reader.name} read version ${version} of ${object}, in the middle of the writes of ${writer.name}`]
    : []
}

function placesOf(transaction: RecordedTransaction, { isolation = 'read committed' }: TransactionHistory): Place[] {
  const { name, began, ended, outcome, operations } = transaction
  const writes = operations.filter(operation => operation.kind === 'write')
  const own = new Set(writes.map(({ element }) => element))
  const reads = operations
    .filter(operation => operation.kind === 'read')
    .filter(({ element = '' }) => !own.has(element))
  const isTogether = (read: Read): boolean => isolation === 'serializable' || read.isChecked === true
  const alone = reads
    .filter(read => !isTogether(read))
    .map(read => ({ name: `a read of ${name}`, began: read.began, ended: read.ended, reads: [read], writes: [] }))
  const end = outcome === 'committed' ? (ended ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY
  return [{ name, began, ended: end, reads: reads.filter(isTogether), writes }, ...alone]
}

function graphOf(places: readonly Place[], { objects }: TransactionHistory): Graph {
  const writerOf = new Map<string, number>()
  for (const [at, { writes }] of places.entries()) for (const { element } of writes) writerOf.set(element, at)
  const edges: Edge[] = []
  const add = (
    from: number | undefined,
    to: number | undefined,
    kind: Edge['kind'],
    object: string,
    version: number,
  ) => {
    if (from !== undefined && to !== undefined && from !== to) edges.push({ from, to, kind, object, version })
  }
  const writer = (object: string, version: number): number | undefined =>
    writerOf.get(objects.get(object)?.[version - 1] ?? '')
  for (const [object, elements] of objects)
    for (let version = 1; version < elements.length; version++)
      add(writer(object, version), writer(object, version + 1), 'ww', object, version)
  for (const [at, { reads }] of places.entries())
    for (const { object, version } of reads) {
      add(writer(object, version), at, 'wr', object, version)
      add(at, writer(object, version + 1), 'rw', object, version)
    }
  return { places, edges }
}

function describeCircle(
  circle: readonly Edge[],
  places: readonly Place[],
  { transactions }: TransactionHistory,
): string {
  const start = Math.min(...transactions.slice(0, 1_000).map(({ began }) => began))
  const time = (at: number): string => (Number.isFinite(at) ? ms(at - start) : '…')
  const lines = circle.map(({ from, to, kind, object, version }) => {
    const [a, b] = [places[from]!, places[to]!]
    if (kind === 'ww') return `  ${a.name} wrote version ${version} of ${object}, and ${b.name} the next one`
    if (kind === 'wr') return `  ${a.name} wrote version ${version} of ${object}, and ${b.name} read it`
    if (kind === 'rw') return `  ${a.name} read version ${version} of ${object}, and ${b.name} wrote the next one`
    return `  ${a.name} had ended (${time(a.ended)} ms) before ${b.name} began (${time(b.began)} ms)`
  })
  return [nameOf(circle), ...lines].join('\n')
}

function nameOf(circle: readonly Edge[]): string {
  const count = (kind: Edge['kind']): number => circle.filter(edge => edge.kind === kind).length
  const [reads, times] = [count('rw'), count('rt')]
  const isOneObject = new Set(circle.filter(({ kind }) => kind !== 'rt').map(({ object }) => object)).size === 1
  if (reads === 0 && times === 0)
    return count('wr') === 0 ? 'a circle of writes' : 'a circle of reads of what was written'
  if (reads === 1 && times > 0 && circle.length === 2) return 'a stale read'
  if (reads === 1 && isOneObject && times === 0) return 'a lost update'
  if (reads > 1 && reads === circle.length) return 'a write skew'
  return reads > 0 ? 'a read that fits no order' : 'writes that fit no order'
}
