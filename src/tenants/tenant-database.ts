/**
 * The database of one tenant: every call goes to the server that has the tenant, and fails if there is none.
 *
 *     call ──► known place ──► its database ──┬── the answer
 *                  ▲                          └── the schema is not there ──► look the tenant up ──► elsewhere: call again
 *                  └── find, prepare ◄── not known yet
 *
 * A place that was found is used until the database says that the schema is missing: dropped, or moved away. Then it is
 * looked up again. So a lookup costs nothing as long as nothing happens, and no call can reach a place that the tenant has
 * left, because the schema there has another name by then.
 *
 * On a cluster every node finds the tenant's rows, and the place is the node that has them, where that can be reached
 * (`nodes.ts`); it is asked for again every few seconds. Changes of tables go to the address that was given.
 *
 * What can fail: a single statement that found no schema has done nothing, so it is sent again to the new place. A
 * transaction is not run twice: it fails with `TenantMoving`, and its caller may try it again.
 */
import { isRillflowError, StoreClosed } from '../core/errors.ts'
import { elapsedMs } from '../core/host.ts'
import type { Database, Listener } from '../database/database.ts'
import type { Statement } from '../database/sql.ts'
import { runOutside } from '../database/transaction.ts'
import { isStoreMissing } from '../transfer/move/moved-marker.ts'
import { TenantMoving, TenantNotFound } from './errors.ts'
import type { Placement, Placements } from './placement.ts'

export interface TenantDatabase {
  readonly database: Database
  /** Forgets where the tenant is: the next call looks it up. */
  forget(): void
}

interface Location {
  readonly placement: Placement
  /** For changes of tables, and all else where there are no nodes. */
  readonly given: Database
  readonly database: Database
}

/** A listener that follows the tenant from server to server. */
interface FollowingListener {
  readonly channel: string
  readonly onNotify: (payload: string) => void
  at: { readonly place: Location; readonly listener: Listener } | undefined
}

/** A cluster may move a tenant at any time, and does not say so. */
const nodeKnownMs = 5_000

/** Whether a tenant was found, is nowhere, or could not be looked up. */
export type Lookup = 'found' | 'missing' | 'failed'

/**
 * `prepare` checks, once per place, that the tenant's store can be used there. It never makes a store that is missing.
 * `onLookup` is called after each lookup.
 */
export function openTenantDatabase(
  placements: Placements,
  tenant: string,
  prepare: (database: Database) => Promise<void>,
  onLookup: (lookup: Lookup) => void = () => {},
): TenantDatabase {
  const { nodes } = placements
  const listeners = new Set<FollowingListener>()
  let known: Location | undefined
  /** When the node of a tenant is asked for again. */
  let staleAt = Number.POSITIVE_INFINITY
  let finding: Promise<Location> | undefined
  let isClosed = false

  const find = async (): Promise<Location> => {
    const placement = await placements.find(tenant)
    if (placement === undefined) throw new TenantNotFound({ tenant })
    const given = await placements.databaseOf(placement.server)
    try {
      // A node that got the tenant from another one got it as it was.
      if (nodes === undefined || known === undefined) await prepare(given)
    } catch (error) {
      const hasNoSchema = isRillflowError(error, 'schema_missing')
      if (placement.state === 'moving' && (hasNoSchema || isStoreMissing(error))) throw movingError(tenant, error)
      throw hasNoSchema ? new TenantNotFound({ tenant }) : error
    }
    const place = { placement, given, database: (await nodes?.reach(placement.server)) ?? given }
    known = place
    if (nodes !== undefined) staleAt = elapsedMs() + nodeKnownMs
    for (const listener of listeners) listenAt(listener, place)
    return place
  }

  const lookUp = async (): Promise<Location> => {
    try {
      const place = await find()
      onLookup('found')
      return place
    } catch (error) {
      onLookup(isRillflowError(error, 'tenant_not_found') ? 'missing' : 'failed')
      throw error
    }
  }

  const here = async (): Promise<Location> => {
    if (isClosed) throw new StoreClosed({})
    if (known !== undefined) {
      if (elapsedMs() >= staleAt) lookAgain()
      return known
    }
    finding ??= lookUp().finally(() => {
      finding = undefined
    })
    return finding
  }

  /** Apart from the calls: each node is right, and the tenant's is only the fastest. */
  const lookAgain = (): void => {
    staleAt = Number.POSITIVE_INFINITY
    void runOutside(find).catch(() => {
      staleAt = elapsedMs() + nodeKnownMs
    })
  }

  /** A connection to a node was lost: from now on its calls take another way, until the node answers again. */
  const noteLoss = (error: unknown, place: Location): void => {
    if (nodes === undefined || place.database === place.given) return
    if (!isRillflowError(error, 'connection_lost') && !isRillflowError(error, 'database_unreachable')) return
    nodes.doubt(place.placement.server)
    if (known === place) known = { ...place, database: place.given }
    staleAt = elapsedMs()
  }

  /** Where the tenant is now, if a call failed because it has left; otherwise throws the error of that call. */
  const elsewhere = async (error: unknown, left: Location): Promise<Location> => {
    if (!isStoreMissing(error)) throw error
    if (known === left) known = undefined
    const place = await here()
    const isSame = place.placement.server === left.placement.server && place.placement.epoch === left.placement.epoch
    if (isSame) throw error
    return place
  }

  const send = async <T>(call: (database: Database, given: Database) => Promise<T>): Promise<T> => {
    const place = await here()
    try {
      return await call(place.database, place.given)
    } catch (error) {
      noteLoss(error, place)
      const { database, given } = await elsewhere(error, place)
      return call(database, given)
    }
  }

  const listenAt = (following: FollowingListener, place: Location): void => {
    if (following.at?.place.database === place.database) return
    following.at?.listener.close().catch(() => {})
    following.at = { place, listener: place.database.listen(following.channel, following.onNotify) }
  }

  return {
    forget() {
      known = undefined
    },
    database: {
      ...placements.traits,
      get hasNodes() {
        return (known?.database ?? placements.traits).hasNodes
      },
      connections: () => known?.database.connections() ?? { busy: 0, idle: 0, waiting: 0 },
      run: statement => send((database, given) => (isOfSchema(statement) ? given : database).run(statement)),
      runArrays: statement =>
        send((database, given) => (isOfSchema(statement) ? given : database).runArrays(statement)),
      copyOut: text => send(database => database.copyOut(text)),
      async transaction(work, options) {
        const place = await here()
        try {
          if (options?.changesTables !== true) return await place.database.transaction(work, options)
          place.database.refuseInsideTransaction('transaction')
          return await place.given.transaction(work, options)
        } catch (error) {
          noteLoss(error, place)
          await elsewhere(error, place)
          throw movingError(tenant, error)
        }
      },
      // A call has found the place before. If the tenant has just left it, its readers find out by their poll.
      notify: (channel, payload) => known?.database.notify(channel, payload),
      listen(channel, onNotify) {
        const following: FollowingListener = { channel, onNotify, at: undefined }
        listeners.add(following)
        if (known !== undefined) listenAt(following, known)
        return {
          ready: here().then(
            () => following.at?.listener.ready,
            () => undefined,
          ),
          receives: here().then(
            () => following.at?.listener.receives,
            () => undefined,
          ),
          async close() {
            listeners.delete(following)
            await following.at?.listener.close()
          },
        }
      },
      refuseInsideTransaction: call => (known?.database ?? placements.traits).refuseInsideTransaction(call),
      async close() {
        isClosed = true
      },
    },
  }
}

/** The catalogue is whole on the coordinator only: comments are not passed on to nodes, nor may nodes change tables. */
function isOfSchema({ label, alone }: Statement): boolean {
  return alone !== undefined || label.startsWith('schema.')
}

function movingError(tenant: string, cause: unknown): Error {
  return new TenantMoving({ tenant, reason: 'its schema was just moved to another server' }, cause)
}
