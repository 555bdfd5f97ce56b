/**
 * Projections: read models that follow the log.
 *
 *     defineProjection            SQL of your own, a handler per type of event
 *     defineDocumentProjection    events folded into documents, of one stream or of many
 *     defineTableProjection       columns set and incremented
 *            │
 *            ▼  one form: filter, tables, apply
 *     async ──► a consumer: applied soon after the commit, under a lease, checkpoint with effect
 *     inline ─► applied in the append's own transaction, before its positions are drawn
 *     live ───► stored nowhere, folded when it is read
 *            │
 *            ▼
 *     store.documents(orders), store.rows(sales)         all are read the same way: `read.ts`
 *
 * Guarantees:
 * - The writes of an async projection and its checkpoint are one transaction: each event counts once, in position order.
 * - A projection with tables is rebuilt into new ones, while the old ones are read, until a switch replaces them; the
 *   result is that of a fresh build, whatever is appended meanwhile.
 * - A sync makes the tables, or the first batch where the store may change the schema; never an event.
 * - Opening a store activates an inline projection that is new. One that is known changes its lifecycle, its version or its
 *   types only by `switch`, and when a runner starts.
 * - Registered projections belong to one store. Everything of them is in its schema.
 *
 * Versions: version 2 of `order-totals` is the consumer `order-totals@2` with the tables `…_v2`. Both run side by side
 * until the old one is no longer registered; its row and its tables stay until an operator removes them.
 *
 * What can fail: `ProjectionNotSynced` before anything is applied; a handler, which follows the failure policy; a switch,
 * with `ViewsDepend` or because it cannot get its locks: then the old tables stay in use.
 */
import { type Consumer, ensureConsumer } from '../consumers/consumer.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { ConsumerNotFound } from '../consumers/errors.ts'
import type { Runnable } from '../consumers/runners/runnable.ts'
import { readStatus } from '../consumers/status.ts'
import { type Named, nameOf } from '../core/definition.ts'
import { DuplicateConsumer, InvalidOption } from '../core/errors.ts'
import { nearestName } from '../core/name.ts'
import { describe, refusingUnknownOptions } from '../core/options.ts'
import type { DocumentParts } from '../documents/collection.ts'
import { listInline } from '../events/inline/barrier.ts'
import type { Schema } from '../schema/schema.ts'
import type { TableRegistry } from '../schema/table.ts'
import { openPreparation, projectionConsumer } from './consumer.ts'
import { inlineForm, makeAsync, makeInline } from './lifecycle.ts'
import { type ListRowsOptions, listRows, type RowPage } from './list-rows.ts'
import { checkLifecycle, type Projection, withoutVersion } from './projection.ts'
import { openReadModels, type ReadModels } from './read.ts'
import { type RebuildOptions, stateOf } from './rebuild/build.ts'
import { pendingRebuilds, type Rebuilt, rebuild } from './rebuild/rebuild.ts'
import { type Rehearsed, type RehearseOptions, rehearse } from './rebuild/rehearse.ts'

export interface SwitchOptions {
  /** Default: the lifecycle of the definition that is registered. */
  readonly lifecycle?: 'inline' | 'async' | undefined
}

export interface Projections {
  /**
   * Makes a projection known to this store. It is registered when the call returns. The promise is for an inline one that
   * is new to the database: it is active when the promise resolves.
   */
  register(projection: Projection): Promise<void>
  /** The rows of one of its tables, by primary key. Needs its code in this process. */
  rows(projection: Named, options?: ListRowsOptions): Promise<RowPage>
  /** Builds its read model again in other tables, says which rows would change, and discards it. */
  rehearse(projection: Named, options?: RehearseOptions): Promise<Rehearsed>
  /** Fills its read model anew from the log, while the old one is read. */
  rebuild(projection: Named, options?: RebuildOptions): Promise<Rebuilt>
  /**
   * Makes a projection inline or async while writers continue; of an inline one also its version and its types become
   * those of the code that is registered here. To make it async no code is needed.
   */
  switch(projection: Named, options?: SwitchOptions): Promise<void>
}

export interface ProjectionParts {
  readonly consumers: Consumers
  readonly schema: Schema
  readonly tables: TableRegistry
  /** Whether tables may be made on demand. */
  readonly syncs: boolean
  /** Whether registering an inline projection that is new activates it. */
  readonly activates: boolean
  /** For reading documents and rows. */
  readonly documents: DocumentParts
  /** Whether a collection of this name is known. */
  isCollection(name: string): boolean
}

interface Registered {
  readonly projection: Projection
  /** Undefined for a live one. */
  readonly consumer: Consumer | undefined
}

export interface OpenedProjections extends ReadModels {
  readonly projections: Projections
  has(name: string): boolean
  /** The same projections for runners: before they run, each gets the lifecycle of its definition. */
  switching(runnable: Runnable): Runnable
}

export function openProjections(parts: ProjectionParts): OpenedProjections {
  const { consumers, schema, tables } = parts
  const { log, wake } = consumers
  const prepare = openPreparation(log.database, schema, parts.syncs)
  const runPending = pendingRebuilds({ consumers, prepare })
  const prepareToFollow = async (projection: Projection, signal?: AbortSignal): Promise<void> => {
    await prepare(projection)
    await runPending(projection, signal)
  }
  const registered = new Map<string, Registered>()
  const tableOwners = new Map<string, string>()

  const find = (name: string): Registered => {
    const found = registered.get(name)
    if (found !== undefined) return found
    throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, registered.keys()) })
  }
  const findConsumer = (name: string): Consumer => {
    const { consumer } = find(name)
    if (consumer !== undefined) return consumer
    const reason = `Projection "${name}" is live: it stores nothing and follows nothing, so it cannot be run.`
    throw new InvalidOption({ option: 'name', reason })
  }
  /** A projection that is registered has a row from now on; any other must have one already. */
  const known = async (name: string): Promise<void> => {
    if (registered.has(name)) return ensureConsumer(log, findConsumer(name))
    const found = (await readStatus(log, { kind: 'projection' })).map(status => status.name)
    if (found.includes(name)) return
    throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, [...registered.keys(), ...found]) })
  }
  const changed = async (change: Promise<void>): Promise<void> => {
    await change
    wake.changed()
  }

  const claimTables = (projection: Projection): void => {
    for (const { declared } of projection.tables) {
      const owner = tableOwners.get(declared.name)
      if (owner !== undefined) {
        const reason = `Projection "${projection.name}" and projection "${owner}" both declare the table "${declared.name}". Give one of them another table.`
        throw new InvalidOption({ option: 'tables', reason })
      }
      tables.register(declared, { isReadModel: true })
    }
    for (const { declared } of projection.tables) tableOwners.set(declared.name, projection.name)
  }

  const refuseCollection = ({ name }: Projection): void => {
    if (!parts.isCollection(withoutVersion(name))) return
    const reason = `Projection "${name}" has the name of a collection. Give one of them another name.`
    throw new InvalidOption({ option: 'name', reason })
  }

  const switchTo = async (name: string, lifecycle: unknown): Promise<void> => {
    if (lifecycle === 'inline') {
      findConsumer(name)
      const { projection } = find(name)
      await runPending(projection)
      await changed(makeInline(consumers, projection, prepare))
      // Otherwise appends would be refused because of a version whose code no longer exists.
      for (const other of await otherVersions(name)) if (!registered.has(other)) await makeAsync(consumers, other)
      return
    }
    if (lifecycle === 'async') return changed(known(name).then(() => makeAsync(consumers, name)))
    const reason = `Projection "${name}" cannot be switched to ${describe(lifecycle)}. It must be 'inline' or 'async'.`
    throw new InvalidOption({ option: 'lifecycle', reason })
  }

  const projections: Projections = {
    register(given) {
      const projection = checkLifecycle(given)
      const { name, lifecycle } = projection
      if (registered.has(name)) throw new DuplicateConsumer({ consumer: name })
      refuseCollection(projection)
      const consumer = lifecycle === 'live' ? undefined : projectionConsumer(log, projection, prepareToFollow)
      if (consumer !== undefined) {
        const unregister = consumers.register(consumer)
        try {
          claimTables(projection)
        } catch (error) {
          unregister()
          throw error
        }
        const inline = inlineForm(log, projection)
        if (inline !== undefined) log.inline.register(inline)
      }
      registered.set(name, { projection, consumer })
      return lifecycle === 'inline' && parts.activates ? activateIfNew(name) : Promise.resolve()
    },
    rebuild: async (given, options) => rebuild({ consumers, prepare }, find(nameOf(given)).projection, options),
    rows: async (given, options = {}) => listRows(log, find(nameOf(given)).projection, options),
    rehearse: async (given, options = {}) => rehearse({ consumers, prepare }, find(nameOf(given)).projection, options),
    async switch(given, { lifecycle } = {}) {
      const name = nameOf(given)
      await switchTo(name, lifecycle ?? find(name).projection.lifecycle)
    },
  }

  /** The versions of a projection that the database has as inline, but for this one. */
  const otherVersions = async (name: string): Promise<string[]> =>
    (await listInline(log)).flatMap(active =>
      active.name !== name && withoutVersion(active.name) === withoutVersion(name) ? [active.name] : [],
    )
  const activateIfNew = async (name: string): Promise<void> => {
    const isNew = (await stateOf(log, name)) === undefined && (await otherVersions(name)).length === 0
    await (isNew ? switchTo(name, 'inline') : runPending(find(name).projection))
  }
  /** Gives the registered projections the lifecycle of their definitions; inline ones also version and types. */
  const switchAll = async (isWanted: (name: string) => boolean): Promise<void> => {
    for (const { name, lifecycle } of [...registered.values()].map(each => each.projection)) {
      if (lifecycle === 'live' || !isWanted(name)) continue
      if (lifecycle === 'inline' || (await stateOf(log, name)) === 'inline') await switchTo(name, lifecycle)
    }
  }
  const has = (name: string): boolean => [...registered.keys()].some(each => withoutVersion(each) === name)

  const optionsOfCalls = {
    rebuild: [1, ['onProgress', 'signal', 'restart', 'switchMs']],
    rehearse: [1, ['onProgress', 'signal']],
    rows: [1, ['table', 'after', 'limit']],
    switch: [1, ['lifecycle']],
  } as const
  return {
    projections: refusingUnknownOptions('store.projections', projections, optionsOfCalls),
    has,
    ...openReadModels({ log, documents: parts.documents, registered: name => registered.get(name)?.projection }),
    switching: runnable => ({
      ...runnable,
      async start(context) {
        await switchAll(name => context.isWanted('projections', name))
        return runnable.start(context)
      },
    }),
  }
}
