/**
 * Connections at hand: between two statements a connection of our own pool stays borrowed for a while, so that the next
 * statement gets it in the same turn. To return it to the driver's pool and to borrow it again takes two timers, several
 * listeners and three promises, which is half as much as sending a statement.
 *
 *     take ──► a kept connection, or none: then it is borrowed from the pool ──► keep ──► kept, most recent first
 *                                                                                  └── wanted by others, used up,
 *                                                                                      or unused for seconds ──► pool
 *
 * Guarantees:
 * - While anyone waits for a connection of the pool, none is kept.
 * - A connection that is lost while it is kept goes back to the pool, which closes it.
 */
import type pg from 'pg'

export interface KeptConnections {
  /** A connection that is free now. */
  take(): pg.PoolClient | undefined
  /** A connection is free again. */
  keep(client: pg.PoolClient): void
  readonly size: number
  /** Returns all of them to the pool. */
  release(): void
  /** The same; and from now on none is kept. */
  close(): void
}

export interface KeptOptions {
  /** How many callers wait for a connection of the pool. */
  waiting(): number
  /** A connection is replaced after so many uses. */
  readonly maxUses: number | undefined
  /** How long a connection is kept without being used; up to twice as long. Default 5000. */
  readonly unusedMs?: number | undefined
}

export function keepConnections({
  waiting,
  maxUses = Number.POSITIVE_INFINITY,
  unusedMs = 5_000,
}: KeptOptions): KeptConnections {
  let kept: pg.PoolClient[] = []
  /** Those that were kept at the last look and not taken since. */
  let unused = new Set<pg.PoolClient>()
  const uses = new WeakMap<pg.PoolClient, number>()
  let timer: NodeJS.Timeout | undefined
  let isClosed = false

  const watch = (client: pg.PoolClient): void => {
    const lost = (error?: Error): void => {
      if (!kept.includes(client)) return
      kept = kept.filter(each => each !== client)
      unused.delete(client)
      client.release(error ?? true)
    }
    client.on('error', lost)
    client.once('end', () => lost())
  }

  const look = (): void => {
    timer = undefined
    for (const client of unused) client.release()
    kept = kept.filter(client => !unused.has(client))
    unused = new Set(kept)
    lookLater()
  }

  const lookLater = (): void => {
    if (kept.length === 0 || timer !== undefined) return
    timer = setTimeout(look, unusedMs)
    timer.unref()
  }

  const release = (): void => {
    for (const client of kept) client.release()
    kept = []
    unused.clear()
  }

  return {
    take() {
      const client = kept.pop()
      if (client !== undefined && unused.size > 0) unused.delete(client)
      return client
    },
    keep(client) {
      const before = uses.get(client)
      if (before === undefined) watch(client)
      const now = (before ?? 0) + 1
      uses.set(client, now)
      if (now >= maxUses) client.release(true)
      else if (isClosed || waiting() > 0) client.release()
      else {
        kept.push(client)
        if (timer === undefined) lookLater()
      }
    },
    get size() {
      return kept.length
    },
    release,
    close() {
      isClosed = true
      clearTimeout(timer)
      release()
    },
  }
}
