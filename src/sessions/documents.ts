/**
 * The documents of one collection as a session sees them: those it has loaded, by id and once each (the identity map),
 * and the changes it has staged. After a change the session loads the staged document.
 */

import { type Awaitable, isPromise } from '../core/core.ts'
import { InvalidOption } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import { checkExpected, checkedBody, checkId, maxBytesOf } from '../documents/body.ts'
import type { OpenCollection } from '../documents/collection.ts'
import { DocumentNotFound, InvalidDocument, PatchMismatch } from '../documents/errors.ts'
import { patched } from '../documents/patch/in-memory.ts'
import type { Patch } from '../documents/patch/patch.ts'
import { treeOf } from '../documents/patch/tree.ts'
import { getDocuments } from '../documents/read.ts'
import type { Change, ChangeKind } from '../documents/write-many.ts'

/** A document in a session. */
export interface SessionDocument<Doc = unknown> {
  readonly id: string
  readonly data: Doc
  /** The version it was loaded or saved at, which a put expects it to have still; 0 if it is not stored yet. */
  readonly version: number
}

export interface SessionPutOptions {
  /**
   * Replace an existing document that was never loaded. Default false: a document that was never loaded is inserted.
   */
  readonly upsert?: boolean | undefined
  /** The version it must have. Default: the one it was loaded at. */
  readonly expected?: number | undefined
}

export interface SessionDeleteOptions {
  /** The version it must have. Default: the one it was loaded at; any if it was not. */
  readonly expected?: number | undefined
}

export interface SessionLoadOptions {
  readonly tx?: AnyTransaction | undefined
  readonly signal?: AbortSignal | undefined
}

/** Changes are staged, and written by `save`. */
export interface SessionDocuments<Doc extends object = Record<string, unknown>> {
  load(id: string, options?: SessionLoadOptions): Promise<SessionDocument<Doc> | undefined>
  /** The existing ones, by id, in the order of the given ids. One query for those not loaded yet. */
  load(ids: readonly string[], options?: SessionLoadOptions): Promise<Map<string, SessionDocument<Doc>>>
  /** Stages a new document; the save fails with `DocumentExists` if there is one. */
  insert(id: string, data: Doc): void
  /** Stages a new document under a new id, which is returned. */
  insert(data: Doc): string
  /** Stages a document: one that was loaded is replaced at that version only, any other is inserted. */
  put(id: string, data: Doc, options?: SessionPutOptions): void
  /** Loads a document, and stages the result of `change`. */
  update(id: string, change: (data: Doc) => Awaitable<Doc>, options?: SessionLoadOptions): Promise<void>
  /** Loads a document, and stages the patched one: it is replaced at the version it was loaded at only. */
  patch(id: string, patch: Patch<Doc>, options?: SessionLoadOptions): Promise<void>
  /** Stages the deletion of a document, for good. */
  delete(id: string, options?: SessionDeleteOptions): void
  softDelete(id: string, options?: SessionDeleteOptions): void
  restore(id: string, options?: SessionDeleteOptions): void
}

interface Staged {
  readonly kind: ChangeKind
  readonly id: string
  readonly body: Awaitable<string> | undefined
  readonly expected: number | undefined
  /** As the session loads it from now on; undefined if it is deleted. */
  readonly document: SessionDocument | undefined
}

export class TrackedDocuments {
  readonly collection: OpenCollection
  /** Loaded or saved; undefined where there was none. */
  readonly #known = new Map<string, SessionDocument | undefined>()
  readonly #staged = new Map<string, Staged>()

  constructor(collection: OpenCollection) {
    this.collection = collection
  }

  get size(): number {
    return this.#staged.size
  }

  async load(ids: readonly string[], options: SessionLoadOptions = {}): Promise<Map<string, SessionDocument>> {
    refuseUnknownOptions('load', options, ['tx', 'signal'])
    const unknown = [...new Set(ids)].filter(id => !this.#known.has(checkId(id)) && !this.#staged.has(id))
    if (unknown.length > 0) {
      const found = await getDocuments(this.collection, unknown, options)
      for (const id of unknown) {
        const stored = found.get(id)
        // Another call may have loaded it meanwhile: then that one counts.
        if (!this.#known.has(id)) this.#known.set(id, stored && { id, data: stored.data, version: stored.version })
      }
    }
    const loaded = new Map<string, SessionDocument>()
    for (const id of ids) {
      const document = this.#staged.has(id) ? this.#staged.get(id)!.document : this.#known.get(id)
      if (document !== undefined) loaded.set(id, document)
    }
    return loaded
  }

  insert(id: string, data: unknown): void {
    const before = this.#staged.get(checkId(id))
    if (before !== undefined && before.kind !== 'delete') this.#refuse(id, before, 'insert')
    if (before === undefined) this.#stage('insert', id, data, undefined)
    else this.#stage('put', id, data, before.expected)
  }

  put(id: string, data: unknown, options: SessionPutOptions = {}): void {
    refuseUnknownOptions('put', options, ['upsert', 'expected'])
    const { upsert = false, expected } = options
    checkExpected(expected)
    const before = this.#staged.get(checkId(id))
    if (before?.kind === 'softDelete' || before?.kind === 'restore') this.#refuse(id, before, 'put')
    const wanted = expected ?? before?.expected ?? (before === undefined ? this.#known.get(id)?.version : undefined)
    const isNew =
      before === undefined ? wanted === undefined && !upsert : before.kind === 'insert' && wanted === undefined
    this.#stage(isNew ? 'insert' : 'put', id, data, wanted)
  }

  /** The document after the change. */
  async changed(id: string, change: (data: never) => unknown, options?: SessionLoadOptions): Promise<unknown> {
    const document = (await this.load([id], options)).get(id)
    if (document === undefined) throw new DocumentNotFound({ collection: this.collection.name, id })
    const after = await change(document.data as never)
    if (after !== undefined) return after
    const reason = 'is undefined after the update: return the new data, data => ({ ...data, visits: 1 })'
    throw new InvalidDocument({ collection: this.collection.name, id, path: 'data', reason })
  }

  /** The document with the patch applied. */
  async patched(id: string, patch: object, options?: SessionLoadOptions): Promise<unknown> {
    const tree = treeOf(patch, maxBytesOf(this.collection))
    const { name: collection } = this.collection
    return this.changed(
      id,
      (data: object) =>
        patched(data, tree, (path, reason) => {
          throw new PatchMismatch({ collection, id, path, reason })
        }),
      options,
    )
  }

  delete(id: string, options: SessionDeleteOptions = {}): void {
    const expected = expectedOf('delete', options)
    const before = this.#staged.get(checkId(id))
    if (before?.kind === 'insert') this.#staged.delete(id)
    else
      this.#take('delete', id, expected ?? before?.expected ?? (before === undefined ? this.#versionOf(id) : undefined))
  }

  softDelete(id: string, options: SessionDeleteOptions = {}): void {
    const expected = expectedOf('softDelete', options)
    this.#alone('softDelete', checkId(id))
    this.#take('softDelete', id, expected ?? this.#versionOf(id))
  }

  restore(id: string, options: SessionDeleteOptions = {}): void {
    const expected = expectedOf('restore', options)
    this.#alone('restore', checkId(id))
    this.#take('restore', id, expected)
  }

  async changes(): Promise<Change[]> {
    const changes: Change[] = []
    for (const { kind, id, body, expected } of this.#staged.values())
      changes.push({ kind, id, body: isPromise(body as object) ? await body : (body as string | undefined), expected })
    return changes
  }

  /** All staged changes are stored, at these versions. */
  saved(versions: ReadonlyMap<string, number>): void {
    for (const { kind, id, document } of this.#staged.values()) {
      const version = versions.get(id)
      if (kind === 'delete' || kind === 'softDelete') this.#known.set(id, undefined)
      else if (document === undefined || version === undefined) this.#known.delete(id)
      else this.#known.set(id, { id, data: document.data, version })
    }
    this.#staged.clear()
  }

  forget(): void {
    this.#known.clear()
    this.#staged.clear()
  }

  #stage(kind: 'insert' | 'put', id: string, data: unknown, expected: number | undefined): void {
    const body = checkedBody(this.collection, id, data)
    // The save awaits it; until then a refusal of an asynchronous schema must not count as unhandled.
    if (isPromise(body)) body.catch(() => {})
    const version = this.#versionOf(id) ?? 0
    this.#staged.set(id, { kind, id, body, expected, document: { id, data, version } })
  }

  #take(kind: 'delete' | 'softDelete' | 'restore', id: string, expected: number | undefined): void {
    this.#staged.set(id, { kind, id, body: undefined, expected, document: undefined })
  }

  #versionOf(id: string): number | undefined {
    return this.#known.get(id)?.version
  }

  #alone(kind: ChangeKind, id: string): void {
    const before = this.#staged.get(id)
    if (before !== undefined) this.#refuse(id, before, kind)
  }

  #refuse(id: string, before: Staged, kind: ChangeKind): never {
    const reason = `Document ${JSON.stringify(id)} is staged for ${before.kind} already, so it cannot be staged for ${kind}. Save in between.`
    throw new InvalidOption({ option: 'id', reason })
  }
}

function expectedOf(call: string, options: SessionDeleteOptions): number | undefined {
  refuseUnknownOptions(call, options, ['expected'])
  checkExpected(options.expected)
  return options.expected
}
