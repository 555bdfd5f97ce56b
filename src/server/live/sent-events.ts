/**
 * Server-sent events: a response whose messages wait in an outbox until the client reads. Sources wait while it is full,
 * so a slow client costs no memory. A comment line keeps an idle connection open through proxies.
 */
import { onAbort, sleep } from '../../core/abort.ts'

/** Counts the messages that wait, and tells both sides. */
export interface Outbox {
  /** One message more waits. */
  added(): void
  /** All of them were taken. */
  emptied(): void
  /** Resolves when a message waits, or after a while. */
  filled(withinMs: number, signal: AbortSignal): Promise<void>
  /** Resolves when there is room for more. */
  room(signal: AbortSignal): Promise<void>
}

export interface SentEvents {
  readonly outbox: Outbox
  /** Everything that waits, as text; empty if nothing does. */
  take(): string
  /** Ends the response. */
  readonly signal: AbortSignal
  /** Called when the client has left. */
  readonly onLeave: () => void
}

const batchMs = 100
const commentMs = 15_000
const retryMs = 3_000
const maxWaiting = 500

export function openOutbox(): Outbox {
  let count = 0
  let wake = (): void => {}
  const waiting = new Set<() => void>()
  return {
    added() {
      count++
      wake()
    },
    emptied() {
      count = 0
      for (const go of [...waiting]) go()
    },
    async filled(withinMs, signal) {
      if (count > 0) return
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, withinMs)
        const release = onAbort(signal, resolve)
        wake = () => {
          clearTimeout(timer)
          release()
          resolve()
        }
      })
      wake = () => {}
    },
    async room(signal) {
      if (count < maxWaiting) return
      await new Promise<void>(resolve => {
        const go = (): void => {
          waiting.delete(go)
          release()
          resolve()
        }
        const release = onAbort(signal, () => resolve())
        waiting.add(go)
      })
    },
  }
}

/** Messages that come within a tenth of a second are sent together. */
export function answerSentEvents({ outbox, take, signal, onLeave }: SentEvents): Response {
  const encoder = new TextEncoder()
  let saidAt = performance.now()
  let isFirst = true
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (isFirst) {
          isFirst = false
          controller.enqueue(encoder.encode(`retry: ${retryMs}\n\n`))
          return
        }
        for (;;) {
          if (signal.aborted) return controller.close()
          const text = take() || (performance.now() - saidAt > commentMs ? ':\n\n' : '')
          if (text !== '') {
            saidAt = performance.now()
            controller.enqueue(encoder.encode(text))
            return
          }
          await outbox.filled(Math.max(1, commentMs - (performance.now() - saidAt)), signal)
          if (!signal.aborted) await sleep(batchMs, { unref: true })
        }
      },
      cancel: onLeave,
    },
    { highWaterMark: 0 },
  )
  return new Response(body, { headers })
}

const headers = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
  'x-content-type-options': 'nosniff',
}
