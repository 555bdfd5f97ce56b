/** Many documents in one call: checked, divided into statements, and written all or none. */

import { throwIfAborted } from '../core/abort.ts'
import { isPromise } from '../core/core.ts'
import type { Executor } from '../database/database.ts'
import { checkExpected, checkedBody, checkId, checkUserId } from './body.ts'
import { type OpenCollection, preparedToWrite, type WriteOptions } from './collection.ts'
import { BulkRefused, type RefusedItem } from './errors.ts'
import { atomically } from './execute.ts'
import { type Change, type ChangeKind, type ChangeOutcome, isRefusal, writeDocuments } from './write-many.ts'

export interface BulkOptions extends WriteOptions {
  /** Write the items that can be written and report the others, instead of refusing all. Default false. */
  readonly partial?: boolean | undefined
}

/** The outcome of one item: `superseded` if a later item of the same call had its id. */
export interface BulkOutcome {
  readonly id: string
  readonly outcome: ChangeOutcome['outcome'] | 'superseded'
  readonly version: number | undefined
}

export interface NewDocument<Doc = unknown> {
  /** Default: a new UUIDv7. */
  readonly id?: string | undefined
  readonly data: Doc
  readonly expected?: number | undefined
}

export interface ChangedDocument<Doc = unknown> extends NewDocument<Doc> {
  readonly id: string
}

/** Upserts; of several items with one id the last one counts. */
export async function putDocuments(
  collection: OpenCollection,
  items: readonly NewDocument[],
  options: BulkOptions = {},
): Promise<BulkOutcome[]> {
  return writeMany(collection, await changesOf(collection, 'put', items), options)
}

/** Replaces documents; several items with one id are several updates. */
export async function updateDocuments(
  collection: OpenCollection,
  items: readonly ChangedDocument[],
  options: BulkOptions = {},
): Promise<BulkOutcome[]> {
  return writeMany(collection, await changesOf(collection, 'update', items), options)
}

/** Deletes, for good or softly. An id without a document is refused only if a version was expected. */
export async function deleteDocuments(
  collection: OpenCollection,
  items: readonly (string | { readonly id: string; readonly expected?: number | undefined })[],
  options: BulkOptions & { readonly soft?: boolean | undefined } = {},
): Promise<BulkOutcome[]> {
  const kind = options.soft === true ? 'softDelete' : 'delete'
  const changes = items.map((item): Change => {
    const { id, expected } = typeof item === 'object' && item !== null ? item : { id: item, expected: undefined }
    return { kind, id: checkId(id), expected: checkExpected(expected) }
  })
  return writeMany(collection, changes, options)
}

async function changesOf(
  collection: OpenCollection,
  kind: ChangeKind,
  items: readonly NewDocument[],
): Promise<Change[]> {
  const changes: Change[] = []
  for (const { id: given, data, expected } of items) {
    const id = given === undefined ? collection.parts.ids.next() : checkId(given)
    const body = checkedBody(collection, id, data)
    // Awaited only where there is a promise: ten thousand needless turns of the event loop take long.
    changes.push({ kind, id, body: isPromise(body) ? await body : body, expected: checkExpected(expected) })
  }
  return changes
}

/** Makes changes in their order; an id may occur any number of times. */
export async function writeMany(
  collection: OpenCollection,
  changes: readonly Change[],
  options: BulkOptions = {},
): Promise<BulkOutcome[]> {
  const userId = checkUserId(options.userId)
  const partial = options.partial ?? false
  const executor = await preparedToWrite(collection, options)
  const outcomes: BulkOutcome[] = []
  const places = takeLatest(changes)
  const steps = stepsOf(collection, changes, places)

  const work = async (within: Executor): Promise<void> => {
    for (const step of steps) {
      throwIfAborted(options.signal)
      const asked = step.map(place => changes[place]!)
      const results = await writeDocuments(within, collection, asked, { userId, partial })
      for (let i = 0; i < step.length; i++) outcomes[step[i]!] = results[i]!
      if (!partial) refuseRefused(collection, changes, step, outcomes)
    }
  }
  // A single statement without inserts refuses before it writes, so it needs no transaction around it.
  const isOneStatement = steps.length <= 1 && !changes.some(change => change.kind === 'insert')
  if (isOneStatement) await work(executor)
  else await atomically(collection, options, work)

  if (places.length === changes.length) return outcomes
  const written = new Map(places.map(place => [changes[place]!.id, outcomes[place]!.version]))
  return changes.map(({ id }, i) => outcomes[i] ?? { id, outcome: 'superseded', version: written.get(id) })
}

/** The indexes of the changes to make: a put that is followed by another put of its id is skipped. */
function takeLatest(changes: readonly Change[]): number[] {
  const nextBlind = new Set<string>()
  const places: number[] = []
  for (let i = changes.length - 1; i >= 0; i--) {
    const { id, kind, expected } = changes[i]!
    const isBlind = kind === 'put' && expected === undefined
    if (isBlind && nextBlind.has(id)) continue
    if (isBlind) nextBlind.add(id)
    else nextBlind.delete(id)
    places.push(i)
  }
  return places.reverse()
}

/** Divides changes into statements of limited size, with no id twice in one, and the changes of one id in their order. */
function stepsOf(collection: OpenCollection, changes: readonly Change[], places: readonly number[]): number[][] {
  const maxItems = collection.parts.database.engine === 'pglite' ? 500 : 10_000
  const steps: { places: number[]; bytes: number }[] = []
  const lastStep = new Map<string, number>()
  for (const place of places) {
    const { id, body = '' } = changes[place]!
    let at = Math.max(steps.length - 1, 0)
    const full = (n: number): boolean =>
      steps[n] !== undefined && (steps[n].places.length >= maxItems || steps[n].bytes + body.length > maxBytes)
    while ((lastStep.get(id) ?? -1) >= at || full(at)) at++
    const step = steps[at] ?? { places: [], bytes: 0 }
    steps[at] = step
    step.places.push(place)
    step.bytes += body.length
    lastStep.set(id, at)
  }
  return steps.map(step => step.places)
}

const maxBytes = 8 * 1024 * 1024

function refuseRefused(
  collection: OpenCollection,
  changes: readonly Change[],
  step: readonly number[],
  outcomes: readonly BulkOutcome[],
): void {
  const items: RefusedItem[] = []
  for (const index of step) {
    const { id, outcome, version } = outcomes[index]!
    if (isRefusal(changes[index]!, outcomes[index]! as ChangeOutcome))
      items.push({ index, id, outcome: outcome as RefusedItem['outcome'], version })
  }
  if (items.length > 0) throw new BulkRefused({ collection: collection.name, items })
}
