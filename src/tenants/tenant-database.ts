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
 * What can fail: a single statement that found no schema has done nothing, so it is sent again to the new place. A
 * transaction is not run twice: it fails with `TenantMoving`, and its caller may try it again.
 */
import { isRillflowError, StoreClosed } from '../core/errors.ts'
import type { Database, Listener } from '../database/database.ts'
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
  readonly database: Database
}

/** A listener that follows the tenant from server to server. */
interface FollowingListener {
  readonly channel: string
  readonly onNotify: (payload: string) => void
  at: { readonly place: Location; readonly listener: Listener } | undefined
}

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
  const listeners = new Set<FollowingListener>()
  let known: Location | undefined
  let finding: Promise<Location> | undefined
  let isClosed = false

  const find = async (): Promise<Location> => {
    const placement = await placements.find(tenant)
    if (placement === undefined) throw new TenantNotFound({ tenant })
    const database = await placements.databaseOf(placement.server)
    try {
      await prepare(database)
    } catch (error) {
      const hasNoSchema = isRillflowError(error, 'schema_missing')
      if (placement.state === 'moving' && (hasNoSchema || isStoreMissing(error))) throw movingError(tenant, error)
      throw hasNoSchema ? new TenantNotFound({ tenant }) : error
    }
    const place = { placement, database }
    known = place
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
    if (known !== undefined) return known
    finding ??= lookUp().finally(() => {
      finding = undefined
    })
    return finding
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

  const send = async <T>(call: (database: Database) => Promise<T>): Promise<T> => {
    const place = await here()
    try {
      return await call(place.database)
    } catch (error) {
      return call((await elsewhere(error, place)).database)
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
      connections: () => known?.database.connections() ?? { busy: 0, idle: 0, waiting: 0 },
      run: statement => send(database => database.run(statement)),
      runArrays: statement => send(database => database.runArrays(statement)),
      copyOut: text => send(database => database.copyOut(text)),
      async transaction(work, options) {
        const place = await here()
        try {
          return await place.database.transaction(work, options)
        } catch (error) {
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

function movingError(tenant: string, cause: unknown): Error {
  return new TenantMoving({ tenant, reason: 'its schema was just moved to another server' }, cause)
}
