/**
 * A batch writer: changes of one collection, gathered now and written together later, in one transaction.
 *
 * After a flush that failed everything is still there, and a second flush is all or nothing again.
 */
import { InvalidOption } from '../core/errors.ts'
import { checkExpected, checkedBody, checkId } from './body.ts'
import { type BulkOutcome, writeMany } from './bulk.ts'
import type { OpenCollection, WriteOptions } from './collection.ts'
import type { Change, ChangeKind } from './write-many.ts'

export interface DocumentBatch<Doc extends object = Record<string, unknown>> {
  /** How many changes wait to be written. */
  readonly size: number
  insert(id: string, data: Doc): this
  put(id: string, data: Doc, options?: ExpectedVersion): this
  update(id: string, data: Doc, options?: ExpectedVersion): this
  delete(id: string, options?: ExpectedVersion): this
  softDelete(id: string, options?: ExpectedVersion): this
  restore(id: string, options?: ExpectedVersion): this
  /** Writes all, or nothing: then `BulkRefused` names what stood against it. An outcome for each, in their order. */
  flush(options?: WriteOptions): Promise<BulkOutcome[]>
  /** Forgets all. */
  clear(): void
}

export interface ExpectedVersion {
  readonly expected?: number | undefined
}

export function openBatch<Doc extends object>(collection: OpenCollection, most: number): DocumentBatch<Doc> {
  let staged: StagedChange[] = []
  let isFlushing = false
  const stage = (kind: ChangeKind, id: string, data: unknown, expected: number | undefined): DocumentBatch<Doc> => {
    if (staged.length >= most)
      throw new InvalidOption({
        option: 'batch',
        reason: `holds its limit of ${most} changes; flush it before adding more`,
      })
    const body = data === undefined ? undefined : checkedBody(collection, checkId(id), data)
    // Looked at when it is flushed; until then an asynchronous schema's refusal has nobody else to hear of it.
    if (body instanceof Promise) body.catch(() => {})
    staged.push({ kind, id: checkId(id), body, expected: checkExpected(expected) })
    return batch
  }

  const batch: DocumentBatch<Doc> = {
    get size() {
      return staged.length
    },
    insert: (id, data) => stage('insert', id, needed(data), undefined),
    put: (id, data, options) => stage('put', id, needed(data), options?.expected),
    update: (id, data, options) => stage('update', id, needed(data), options?.expected),
    delete: (id, options) => stage('delete', id, undefined, options?.expected),
    softDelete: (id, options) => stage('softDelete', id, undefined, options?.expected),
    restore: (id, options) => stage('restore', id, undefined, options?.expected),
    async flush(options = {}) {
      if (isFlushing) throw new InvalidOption({ option: 'flush', reason: 'is under way already; await it first' })
      isFlushing = true
      try {
        const taken = staged
        const changes: Change[] = []
        for (const change of taken) changes.push({ ...change, body: await change.body })
        const outcomes = await writeMany(collection, changes, options)
        // What was added meanwhile waits for the next one.
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

/** Null is no document, but it is something to say no to. */
function needed(data: unknown): unknown {
  return data === undefined ? null : data
}
