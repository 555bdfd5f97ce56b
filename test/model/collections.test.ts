/** Random sequences of document operations, one by one and in batches, compared with a map in memory. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Documents as Collection } from '../../src/documents/documents.ts'
import { increment } from '../../src/documents/patch/patch.ts'
import { openShop, outcome } from '../support/shop.ts'

interface Counter {
  n: number
}

interface Kept {
  readonly version: number
  readonly data: Counter
  readonly isDeleted: boolean
}

const kinds = ['insert', 'put', 'update', 'patch', 'delete', 'softDelete', 'restore'] as const

interface Call {
  readonly kind: (typeof kinds)[number]
  readonly id: string
  readonly n: number
  readonly expected: number | undefined
  readonly inBatch: boolean
}

const calls: fc.Arbitrary<Call> = fc.record({
  kind: fc.constantFrom(...kinds),
  id: fc.constantFrom('a', 'a', 'b'),
  n: fc.nat({ max: 9 }),
  expected: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined, freq: 2 }),
  inBatch: fc.boolean(),
})

/** The result of a call: a version, whether there was a document to delete, or the code of an error. */
type Answer = number | boolean | string

class Documents {
  readonly #kept = new Map<string, Kept>()
  /** The last version of each id, because versions continue after a delete. */
  readonly #last = new Map<string, number>()
  readonly #hasHistory: boolean

  constructor(hasHistory: boolean) {
    this.#hasHistory = hasHistory
  }

  live(): [string, Kept][] {
    return [...this.#kept].filter(([, kept]) => !kept.isDeleted).sort()
  }

  call({ kind, id, n, expected }: Call): Answer {
    const found = this.#kept.get(id)
    const isBlindPut = kind === 'put' && expected === undefined
    if (kind === 'insert' && found !== undefined) return found.isDeleted ? 'document_deleted' : 'document_exists'
    if (kind === 'insert' || isBlindPut) return this.#keep(id, { n }, false)
    if (found === undefined) return kind === 'delete' && expected === undefined ? false : 'document_not_found'
    const isAny = kind === 'delete' || kind === 'softDelete' || kind === 'restore'
    if (found.isDeleted && !isAny) return 'document_deleted'
    if (expected !== undefined && expected !== found.version) return 'document_conflict'
    if (kind === 'delete') {
      this.#kept.delete(id)
      this.#last.set(id, found.version + 1)
      return true
    }
    if (kind === 'softDelete') return found.isDeleted ? found.version : this.#keep(id, found.data, true)
    if (kind === 'restore') return found.isDeleted ? this.#keep(id, found.data, false) : found.version
    return this.#keep(id, { n: kind === 'patch' ? found.data.n + n : n }, false)
  }

  #keep(id: string, data: Counter, isDeleted: boolean): number {
    const before = this.#kept.get(id)?.version ?? (this.#hasHistory ? (this.#last.get(id) ?? 0) : 0)
    this.#kept.set(id, { version: before + 1, data, isDeleted })
    return before + 1
  }
}

async function ask(collection: Collection<Counter>, call: Call): Promise<Answer> {
  const { kind, id, n, expected, inBatch } = call
  const { value, error } = await outcome(inBatch && kind !== 'patch' ? inOneBatch() : alone())
  if (error === undefined) return value as Answer
  const { code, items } = error as { code: string; items?: { outcome: string }[] }
  if (code !== 'bulk_refused') return code
  const codes = { exists: 'exists', missing: 'not_found', deleted: 'deleted', conflict: 'conflict' }
  return `document_${codes[items![0]!.outcome as keyof typeof codes]}`

  function alone(): Promise<number | boolean> {
    const options = { expected }
    if (kind === 'insert') return collection.insert(id, { n })
    if (kind === 'put') return collection.put(id, { n }, options)
    if (kind === 'update') return collection.update(id, () => ({ n }), options)
    if (kind === 'patch') return collection.patch(id, { n: increment(n) }, options)
    return collection[kind](id, options)
  }

  async function inOneBatch(): Promise<number | boolean> {
    const batch = collection.batch()
    if (kind === 'insert') batch.insert(id, { n })
    else if (kind === 'put' || kind === 'update') batch[kind](id, { n }, { expected })
    else if (kind !== 'patch') batch[kind](id, { expected })
    const [only] = await batch.flush()
    return kind === 'delete' ? only!.outcome === 'written' : only!.version!
  }
}

test.each([{ history: false }, { history: true }])(
  'a random sequence of document operations ends like a map (%j)',
  async options => {
    const { store } = await openShop()
    let walk = 0

    const property = fc.asyncProperty(fc.array(calls, { minLength: 5, maxLength: 20 }), async walked => {
      const collection = store.documents<Counter>('counters', { ...options, gin: false })
      const model = new Documents(options.history)
      const prefix = `${++walk}-`
      for (const call of walked) {
        const own = { ...call, id: prefix + call.id }
        expect(await ask(collection, own), JSON.stringify(call)).toBe(model.call(own))
      }
      const found = await collection.getMany(['a', 'b'].map(id => prefix + id))
      const live = model.live().map(([id, { version, data }]) => [id, version, data])
      expect([...found.values()].map(({ id, version, data }) => [id, version, data])).toEqual(live)
    })

    await fc.assert(property, { numRuns: process.env.RILLFLOW_CHAOS === 'long' ? 500 : 25 })
  },
)
