/**
 * The database as one tenant has it: every call goes to where the tenant is, and says so if it is nowhere.
 *
 * A place that was found is used until the database says that the schema is not there: dropped, or moved away. Then it is
 * looked up again. So a lookup costs nothing as long as nothing happens, and no call can reach a place that was left: the
 * schema there has another name by then. A single statement that failed this way has done nothing and is sent on to the new
 * place; a transaction is not run twice, but fails with `TenantMoving`, which may be tried again.
 */
import { isRillflowError, StoreClosed } from '../core/errors.ts'
import type { Database, Listener } from '../database/database.ts'
import { isGone } from '../transfer/move/gone.ts'
import { TenantMoving, TenantNotFound } from './errors.ts'
import type { Placement, Placements } from './placement.ts'

export interface Gate {
  readonly database: Database
  /** Whether there was no such tenant when it was last asked for. */
  readonly isNowhere: boolean
  /** Forgets the place: the next call looks it up. */
  forget(): void
}

interface Place {
  readonly placement: Placement
  readonly database: Database
}

interface Ear {
  readonly channel: string
  readonly hear: (payload: string) => void
  at: { readonly place: Place; readonly listener: Listener } | undefined
}

/** `prepare` makes sure, once per place, that the tenant's store can be used there. It never makes one that is missing. */
export function openGate(placements: Placements, tenant: string, prepare: (database: Database) => Promise<void>): Gate {
  const ears = new Set<Ear>()
  let known: Place | undefined
  let finding: Promise<Place> | undefined
  let isNowhere = false
  let isClosed = false

  const find = async (): Promise<Place> => {
    const placement = await placements.find(tenant)
    isNowhere = placement === undefined
    if (placement === undefined) throw new TenantNotFound({ tenant })
    const database = await placements.databaseOf(placement.server)
    try {
      await prepare(database)
    } catch (error) {
      const isMissing = isRillflowError(error, 'schema_missing')
      if (placement.state === 'moving' && (isMissing || isGone(error))) throw moving(tenant, error)
      throw isMissing ? new TenantNotFound({ tenant }) : error
    }
    const place = { placement, database }
    known = place
    for (const ear of ears) listenAt(ear, place)
    return place
  }

  const here = async (): Promise<Place> => {
    if (isClosed) throw new StoreClosed({})
    if (known !== undefined) return known
    finding ??= find().finally(() => {
      finding = undefined
    })
    return finding
  }

  /** Where the tenant is now, if a call failed because it is not there any more; otherwise throws what that call threw. */
  const elsewhere = async (error: unknown, left: Place): Promise<Place> => {
    if (!isGone(error)) throw error
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

  const listenAt = (ear: Ear, place: Place): void => {
    if (ear.at?.place.database === place.database) return
    ear.at?.listener.close().catch(() => {})
    ear.at = { place, listener: place.database.listen(ear.channel, ear.hear) }
  }

  return {
    get isNowhere() {
      return isNowhere
    },
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
          throw moving(tenant, error)
        }
      },
      listen(channel, hear) {
        const ear: Ear = { channel, hear, at: undefined }
        ears.add(ear)
        if (known !== undefined) listenAt(ear, known)
        return {
          ready: here().then(
            () => ear.at?.listener.ready,
            () => undefined,
          ),
          async close() {
            ears.delete(ear)
            await ear.at?.listener.close()
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

function moving(tenant: string, cause?: unknown): Error {
  return new TenantMoving({ tenant, reason: 'its schema was just taken to another server' }, cause)
}
