/**
 * A connection of its own that listens on a channel and reconnects.
 *
 *     connect ─► listen ─► notifications, and a heartbeat every 5 s ─► lost, or no answer ─► backoff ─► connect
 *                   └──► once: a notification to itself, through the pool. Does it arrive?
 *
 * A half-open socket is silent, like a channel on which nothing happens. So the listener sends a statement every few
 * seconds and closes the connection if no answer comes. After each reconnect the callback runs once, with an empty
 * payload: notifications that were sent in between are lost, so the receiver has to look.
 */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { type Deferred, deferred, onAbort, sleep } from '../../core/abort.ts'
import { openLoop } from '../../core/loop.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { Listener } from '../database.ts'
import { identifier } from '../sql.ts'

const backoff: Backoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }
const heartbeatMs = 5_000
const silenceMs = 5_000

/** The payload of a notification that a listener sends to itself. Others ignore it. */
const testPayload = 'rillflow listener test '

export interface ListenParts {
  readonly driver: typeof pg
  readonly config: pg.ClientConfig
  readonly channel: string
  /** Sends a notification on the channel, through another connection. */
  notify(payload: string): Promise<unknown>
}

export function listenPostgres(
  { driver, config, channel, notify }: ListenParts,
  onNotify: (payload: string) => void,
): Listener {
  const ready = deferred<void>()
  const receives = deferred<boolean | undefined>()
  const own = testPayload + randomUUID()
  let isTested = false
  const loop = openLoop({ look: listen, pollMs: Number.POSITIVE_INFINITY, backoff })
  loop.lookSoon()
  return {
    ready: ready.promise,
    receives: receives.promise,
    async close() {
      await loop.stop()
      ready.resolve()
      receives.resolve(undefined)
    },
  }

  /** A test that was cut off is made again on the next connection. */
  async function test(lost: Deferred<void>, closing: AbortSignal): Promise<void> {
    if (isTested) return
    isTested = true
    try {
      await notify(own)
    } catch {
      isTested = false
      return
    }
    const outcome = await Promise.race([
      receives.promise.then(() => 'arrived'),
      lost.promise.then(() => 'lost'),
      sleep(silenceMs, { signal: closing }).then(
        () => 'silent',
        () => 'lost',
      ),
    ])
    if (outcome === 'silent') receives.resolve(false)
    isTested = outcome !== 'lost'
  }

  function receive(payload: string): void {
    if (payload === own) receives.resolve(true)
    else if (!payload.startsWith(testPayload)) onNotify(payload)
  }

  /** Listens until the connection is lost or the listener is closed. Returns how soon to connect again. */
  async function listen(closing: AbortSignal): Promise<number | undefined> {
    const client = new driver.Client({ ...config, connectionTimeoutMillis: silenceMs })
    const lost = deferred<void>()
    client.on('error', lost.resolve as () => void)
    client.on('end', lost.resolve as () => void)
    client.on('notification', message => receive(message.payload ?? ''))
    const release = onAbort(closing, () => lost.resolve())
    let heartbeat: NodeJS.Timeout | undefined
    try {
      await Promise.race([client.connect(), lost.promise])
      if (closing.aborted) return undefined
      if (await isSilent(client.query(`listen ${identifier(channel).quoted}`), lost))
        throw new Error('The server does not answer.')
      ready.resolve()
      onNotify('')
      void test(lost, closing)
      heartbeat = setInterval(() => void isSilent(client.query('select 1'), lost).catch(() => {}), heartbeatMs)
      heartbeat.unref()
      await lost.promise
      // After a restart of the server many processes connect again: not all at the same moment.
      return delay(backoff, 1, Math.random)
    } finally {
      clearInterval(heartbeat)
      release()
      client.end().catch(() => {})
      ;(client as unknown as { connection?: { stream?: { destroy(): void } } }).connection?.stream?.destroy()
    }
  }
}

/** Whether the connection is lost before the answer, or is given up because no answer comes. */
async function isSilent(answer: Promise<unknown>, lost: Deferred<void>): Promise<boolean> {
  const timer = setTimeout(() => lost.resolve(), silenceMs)
  try {
    return await Promise.race([answer.then(() => false), lost.promise.then(() => true)])
  } finally {
    clearTimeout(timer)
  }
}
