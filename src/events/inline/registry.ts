/** The inline projections whose code this store has. The database alone decides which of them are active. */
import { DuplicateConsumer } from '../../core/errors.ts'
import type { Transaction } from '../../database/database.ts'
import type { Append } from '../append/send.ts'
import type { RecordedEvent } from '../definition.ts'

export interface InlineProjection {
  readonly name: string
  readonly version: number
  /** The types it wants, as readers see them; undefined: all. */
  readonly types: readonly string[] | undefined
  /** How long it may take. Default 30 000, embedded 5000. */
  readonly timeoutMs?: number | undefined
  /**
   * Applies the events of one append, before they are stored: their versions are known, their position is still 0n. It
   * may await nothing but the transaction. If it throws, the append is rolled back.
   */
  apply(events: readonly RecordedEvent[], tx: Transaction, signal: AbortSignal): Promise<void>
}

export interface InlineRegistry {
  /** The function returned removes it. */
  register(projection: InlineProjection): () => void
  get(name: string): InlineProjection | undefined
  /** In the order they were registered, which is the order they run in. */
  list(): InlineProjection[]
  /**
   * Whether one probably wants an event of this append, as the last ones did: saves a question, and is never relied on.
   */
  mayWant(append: Pick<Append, 'parts'>): boolean
  /** Records the database's answer for an append with such events. */
  learn(append: Pick<Append, 'parts'>, wanted: boolean): void
}

export function inlineRegistry(): InlineRegistry {
  const projections = new Map<string, InlineProjection>()
  const wanted = new Set<string>()
  return {
    register(projection) {
      const { name } = projection
      if (projections.has(name)) throw new DuplicateConsumer({ consumer: name })
      projections.set(name, projection)
      return () => {
        if (projections.get(name) === projection) projections.delete(name)
      }
    },
    get: name => projections.get(name),
    list: () => [...projections.values()],
    mayWant: ({ parts }) => wanted.size > 0 && parts.some(({ events }) => events.some(({ type }) => wanted.has(type))),
    learn({ parts }, isWanted) {
      for (const { type } of parts.flatMap(({ events }) => events)) {
        if (!isWanted) wanted.delete(type)
        else if (wanted.size < maxLearned) wanted.add(type)
      }
    },
  }
}

const maxLearned = 10_000
