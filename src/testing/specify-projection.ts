/** What a projection makes of events: run in a temporary store as it would be in a real one. */
import { isDeepStrictEqual } from 'node:util'
import { failFast } from '../consumers/run/policy.ts'
import { identifier } from '../database/sql.ts'
import type { NewEventOf } from '../events/definition.ts'
import type { DocumentProjection } from '../projections/document-projection.ts'
import type { Projection } from '../projections/projection.ts'
import { tableNames } from '../projections/table.ts'
import type { Store, StoreOptions } from '../store.ts'
import { SpecificationFailed } from './failure.ts'
import { settle } from './settle.ts'
import { temporaryStore } from './temporary-store.ts'

/** Where it runs. Default: the embedded engine that all temporary stores share. */
export type SpecifyOptions = Pick<StoreOptions, 'database' | 'url' | 'pool' | 'upcasters'>

/** An event, and the stream it is in. Default `stream-1`. */
export type GivenEvent = NewEventOf<string, unknown> & { readonly stream?: string | undefined }

export interface GivenOptions {
  /** Deliver all events a second time, and expect the same: proves that applying them again changes nothing. */
  repeat?: boolean | undefined
}

export type ProjectionSpecification<Expected> = (
  events: GivenEvent | readonly GivenEvent[],
  options?: GivenOptions,
) => {
  /** All documents by their ids; or the rows of each table, in the order of their primary keys. */
  then(expected: Expected): Promise<void>
}

export function specifyProjection(
  projection: Projection,
  options: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, unknown>>> {
  return (events, { repeat = false } = {}) => ({
    // biome-ignore lint/suspicious/noThenProperty: the word of the trade; awaited by mistake, it says so
    then(expected) {
      if (typeof expected === 'function')
        throw new TypeError('a specification is not awaited before its end: call .then(documents) on it')
      const given = Array.isArray(events) ? (events as readonly GivenEvent[]) : [events as GivenEvent]
      return check(projection, options, given, expected, repeat)
    },
  })
}

async function check(
  projection: Projection,
  options: SpecifyOptions,
  given: readonly GivenEvent[],
  expected: Readonly<Record<string, unknown>>,
  repeat: boolean,
): Promise<void> {
  await using store = await temporaryStore(options)
  // A handler that fails is to be seen, not tried again.
  const subject = { ...projection, options: { ...projection.options, policy: failFast() } }
  await store.projections.register(subject)
  for (const { stream = defaultStream, ...event } of given) await store.events.append(stream, event)
  await settle(store)
  const what = `Projection "${projection.name}" of ${given.length} events`
  compare(what, expected, await readModel(store, subject, given))
  if (!repeat || projection.lifecycle === 'live') return
  await store.projections.reset(projection.name, 0)
  await settle(store)
  compare(`${what}, delivered twice`, expected, await readModel(store, subject, given))
}

const defaultStream = 'stream-1'

/** As JSON: what a document is stored as, and how numbers of any column type compare. */
function compare(what: string, expected: unknown, actual: unknown): void {
  const wanted = JSON.parse(JSON.stringify(expected)) as unknown
  if (!isDeepStrictEqual(actual, wanted)) throw new SpecificationFailed({ what, expected: wanted, actual })
}

async function readModel(store: Store, projection: Projection, given: readonly GivenEvent[]): Promise<unknown> {
  if (projection.lifecycle === 'live') return readLive(store, projection as DocumentProjection<object>, given)
  const names = tableNames(store.schema.name, projection)
  return store.transaction(async tx => {
    if ('documentTable' in projection) {
      const table = names((projection as DocumentProjection<unknown>).documentTable)
      const rows = await tx.query<{ id: string; body: unknown }>(
        `select id, body from ${table} where deleted_at is null order by id`,
      )
      return Object.fromEntries(rows.map(({ id, body }) => [id, body]))
    }
    const tables: Record<string, unknown> = {}
    for (const { name, declared } of projection.tables) {
      const keys = declared.primaryKey.map(column => `t.${identifier(column)}`).join(', ')
      const rows = await tx.query<{ row: unknown }>(
        `select to_jsonb(t) as row from ${names(name)} as t order by ${keys}`,
      )
      tables[name] = rows.map(({ row }) => row)
    }
    return tables
  })
}

async function readLive(
  store: Store,
  projection: DocumentProjection<object>,
  given: readonly GivenEvent[],
): Promise<unknown> {
  const documents: Record<string, unknown> = {}
  for (const stream of new Set(given.map(event => event.stream ?? defaultStream))) {
    const document = await store.documents(projection).get(stream)
    if (document !== undefined) documents[stream] = JSON.parse(JSON.stringify(document.data))
  }
  return documents
}
