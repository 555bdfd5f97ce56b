/**
 * A batch writer: changes of one collection, gathered now and written together later, in one transaction.
 *
 * After a flush that failed every change is still staged, and a second flush is all or nothing again.
 */

import { InvalidOption } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import { checkExpected, checkedBody, checkId } from './body.ts'
import { type BulkOutcome, writeMany } from './bulk.ts'
import type { OpenCollection, WriteOptions } from './collection.ts'
import type { Change, ChangeKind } from './write-many.ts'

export interface DocumentBatch<Doc extends object = Record<string, unknown>> {
  /** The number of staged changes. */
  readonly size: number
  insert(id: string, data: Doc): this
  put(id: string, data: Doc, options?: ExpectedVersion): this
  update(id: string, data: Doc, options?: ExpectedVersion): this
  delete(id: string, options?: ExpectedVersion): this
  softDelete(id: string, options?: ExpectedVersion): this
  restore(id: string, options?: ExpectedVersion): this
  /** Writes all changes, or none: then `BulkRefused` names the refused ones. Returns an outcome for each, in their order. */
  flush(options?: WriteOptions): Promise<BulkOutcome[]>
  /** Discards all changes. */
  clear(): void
}

export interface ExpectedVersion {
  readonly expected?: number | undefined
}

export function openBatch<Doc extends object>(collection: OpenCollection, maxChanges: number): DocumentBatch<Doc> {
  let staged: StagedChange[] = []
  let isFlushing = false
  const stage = (kind: ChangeKind, id: string, data: unknown, expected: number | undefined): DocumentBatch<Doc> => {
    if (staged.length >= maxChanges) {
      const reason = `The batch of collection "${collection.name}" holds its limit of ${maxChanges} changes. Flush it before adding more, or open it with more maxChanges.`
      throw new InvalidOption({ option: 'maxChanges', reason })
    }
    const body = data === undefined ? undefined : checkedBody(collection, checkId(id), data)
    // The flush awaits it; until then a refusal of an asynchronous schema must not count as unhandled.
    if (body instanceof Promise) body.catch(() => {})
    staged.push({ kind, id: checkId(id), body, expected: checkExpected(expected) })
    return batch
  }

  const batch: DocumentBatch<Doc> = {
    get size() {
      return staged.length
    },
    insert: (id, data) => stage('insert', id, needed(data), undefined),
    put: (id, data, options) => stage('put', id, needed(data), expectedOf('put', options)),
    update: (id, data, options) => stage('update', id, needed(data), expectedOf('update', options)),
    delete: (id, options) => stage('delete', id, undefined, expectedOf('delete', options)),
    softDelete: (id, options) => stage('softDelete', id, undefined, expectedOf('softDelete', options)),
    restore: (id, options) => stage('restore', id, undefined, expectedOf('restore', options)),
    async flush(options = {}) {
      refuseUnknownOptions('batch.flush', options, ['tx', 'signal', 'userId'])
      if (isFlushing) {
        const reason = `The batch of collection "${collection.name}" is being flushed. Await that flush before the next one.`
        throw new InvalidOption({ option: 'flush', reason })
      }
      isFlushing = true
      try {
        const taken = staged
        const changes: Change[] = []
        for (const change of taken) changes.push({ ...change, body: await change.body })
        const outcomes = await writeMany(collection, changes, options)
        // Changes that were added meanwhile stay for the next flush.
        staged = staged.slice(taken.length)
        return outcomes
      } finally {
        isFlushing = false
      }
    },
    clear() {
      staged = []
    },
  }
  return batch
}

interface StagedChange extends Omit<Change, 'body'> {
  readonly body: string | Promise<string> | undefined
}

/** A change without data would be taken for a deletion; null is refused as a document. */
function needed(data: unknown): unknown {
  return data === undefined ? null : data
}

function expectedOf(call: string, options: ExpectedVersion = {}): number | undefined {
  refuseUnknownOptions(`batch.${call}`, options, ['expected'])
  return options.expected
}
