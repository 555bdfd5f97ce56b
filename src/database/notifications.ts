/**
 * Notifications of one database, of all stores on it: at most one statement every 20 ms, whatever the number of tenants.
 *
 *     notify ──► due ──► loop: the next turn, or 20 ms after the last statement ──► one statement for all that is due
 *
 * Guarantee: the caller never waits for it, and the statement that it sends next is sent before.
 *
 * What can fail: the statement. Its notifications are dropped, and their receivers find out by their poll.
 */
import { sleep } from '../core/abort.ts'
import { nextTurn } from '../core/host.ts'
import { openLoop } from '../core/loop.ts'
import { type Statement, sql } from './sql.ts'

export interface Notifications {
  notify(channel: string, payload: string): void
  /** Drops what is due; from now on nothing is sent. */
  close(): void
}

/** Shorter would cost a busy writer more statements than it gains readers in time. */
const everyMs = 20

export function openNotifications(send: (statement: Statement) => Promise<unknown>): Notifications {
  /** Each once, by payload and channel. */
  const due = new Map<string, readonly [channel: string, payload: string]>()
  let isClosed = false
  const loop = openLoop({ look, pollMs: Number.POSITIVE_INFINITY, unref: true })

  return {
    notify(channel, payload) {
      if (isClosed) return
      due.set(`${channel}\n${payload}`, [channel, payload])
      loop.lookSoon()
    },
    close() {
      isClosed = true
      due.clear()
      void loop.stop()
    },
  }

  async function look(closing: AbortSignal): Promise<undefined> {
    await nextTurn()
    const all = [...due.values()]
    due.clear()
    if (all.length === 0) return
    await send(notifications(all)).catch(() => {})
    await sleep(everyMs, { signal: closing, unref: true }).catch(() => {})
  }
}

/** Not worth a flush to the disk, which it would have by itself: 3 ms each, and the next one of the writers waits for it. */
function notifications(all: readonly (readonly [channel: string, payload: string])[]): Statement {
  return sql`/* database.notify */
    select pg_notify(channel, payload), set_config('synchronous_commit', 'off', true)
    from unnest(
      ${all.map(([channel]) => channel)}::text[],
      ${all.map(([, payload]) => payload)}::text[]) as sent(channel, payload)`
}
