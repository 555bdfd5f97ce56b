/**
 * One live connection. Each topic has a source that puts messages into a small buffer and waits while it is full; the
 * stream takes them out whenever its client reads (`sent-events.ts`).
 */
import { onAbort, sleep } from '../../core/abort.ts'
import { InvalidOption } from '../../core/errors.ts'
import { openLoop } from '../../core/loop.ts'
import type { EventFilter } from '../../events/read/log.ts'
import type { Redaction } from '../access/redact.ts'
import type { Operations } from '../api/operations.ts'
import type { StoreReadings } from '../api/readings.ts'
import { shownEvent } from '../api/shown.ts'
import type { ApiStore } from '../api/source.ts'
import { floodPauseMs, openPace } from './pace.ts'
import { answerSentEvents, type Outbox, openOutbox } from './sent-events.ts'

export type Topic = 'figures' | 'events' | 'activity' | 'deadLetters' | 'operations'
export const topics: readonly Topic[] = ['figures', 'events', 'activity', 'deadLetters', 'operations']

export interface FeedOptions {
  readonly topics: readonly Topic[]
  /** Of the events. */
  readonly filter: EventFilter
  /** Of the activity. */
  readonly correlationId: string | undefined
  /** The id of the last message that the client has. */
  readonly after: string | undefined
  readonly redact: Redaction
  readonly store: ApiStore
  readonly readings: StoreReadings
  readonly operations: Operations
  readonly signal: AbortSignal
  readonly onEnd: () => void
}

const figuresMs = 2_000
/** A client that is further behind is set to now. */
const maxBehind = 5_000

export async function openFeed(options: FeedOptions): Promise<Response> {
  const start = await startOf(options)
  const ended = new AbortController()
  const end = (): void => {
    if (ended.signal.aborted) return
    ended.abort()
    options.onEnd()
  }
  onAbort(options.signal, end)
  const buffer = openBuffer(start)
  if (start.gap !== undefined) buffer.add('gap', start.gap)
  for (const source of sourcesOf({ ...options, signal: ended.signal }, start, buffer)) source.catch(() => end())

  return answerSentEvents({ outbox: buffer.outbox, take: buffer.take, signal: ended.signal, onLeave: end })
}

interface Start {
  readonly log: number
  readonly activity: number | 'now'
  readonly gap: object | undefined
}

/** Where the client was, or now. */
async function startOf({ store, after }: FeedOptions): Promise<Start> {
  const { settled } = await store.events.settled()
  if (after === undefined) return { log: settled, activity: 'now', gap: undefined }
  const [, log, activity] = /^e(\d{1,16})\.a(\d{0,16})$/.exec(after) ?? []
  if (log === undefined)
    throw new InvalidOption({
      option: 'after',
      reason: 'The parameter "after" must be the id of a message of the feed.',
    })
  const from = Math.min(Number(log), settled)
  const lines = activity === '' ? ('now' as const) : Number(activity)
  if (settled - from <= maxBehind) return { log: from, activity: lines, gap: undefined }
  return { log: settled, activity: 'now', gap: { topic: 'events', from, to: settled } }
}

function sourcesOf(options: FeedOptions, start: Start, buffer: Buffer): Promise<void>[] {
  const { store, readings, redact, filter, correlationId, signal } = options
  const isWanted = (topic: Topic): boolean => options.topics.includes(topic)
  const sources: Promise<void>[] = []
  if (isWanted('figures')) sources.push(followFigures())
  if (isWanted('events')) sources.push(followEvents())
  if (isWanted('activity') || isWanted('deadLetters')) sources.push(followActivity())
  if (isWanted('operations')) {
    const leave = options.operations.watch(operation => buffer.add('operations', operation))
    onAbort(signal, leave)
  }
  return sources

  /** Rejects if they cannot be read. */
  function followFigures(): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = async (): Promise<undefined> => {
        readings.look()
        buffer.replace('figures', await readings.figures())
      }
      const loop = openLoop({ look, pollMs: figuresMs, jitter: 0, unref: true, onFailure: reject })
      onAbort(signal, () => void loop.stop().then(resolve))
      loop.lookSoon()
    })
  }
  async function followEvents(): Promise<void> {
    const pace = openPace()
    for (let from = start.log; !signal.aborted; ) {
      for await (const event of store.events.tail({ ...filter, from, signal })) {
        if (!pace.take()) break
        from = event.position
        buffer.add('events', shownEvent(redact.event(event)), { log: from })
        await buffer.outbox.room(signal)
      }
      if (signal.aborted || !(await rests(signal))) return
      const { settled: to } = await store.events.settled()
      if (to > from) buffer.add('gap', { topic: 'events', from, to }, { log: to })
      from = Math.max(from, to)
    }
  }
  async function followActivity(): Promise<void> {
    const pace = openPace()
    for (let from = start.activity; !signal.aborted; from = 'now') {
      for await (const line of store.workflows.watch({ from, correlationId, signal })) {
        if (!pace.take()) break
        const shown = { ...line, error: redact.error(line.error) }
        if (isWanted('activity')) buffer.add('activity', shown, { activity: line.position })
        if (isWanted('deadLetters') && isForGood(line.kind, line.outcome)) buffer.add('deadLetters', shown)
        await buffer.outbox.room(signal)
      }
      if (signal.aborted || !(await rests(signal))) return
      buffer.add('gap', { topic: 'activity' })
    }
  }
}

/** After a flood; false if the feed ends meanwhile. */
function rests(signal: AbortSignal): Promise<boolean> {
  return sleep(floodPauseMs, { signal, unref: true }).then(
    () => true,
    () => false,
  )
}

/** A failure that is not retried is a dead letter. */
function isForGood(kind: string, outcome: string | undefined): boolean {
  return kind === 'failed' && outcome !== 'retry' && outcome !== 'timeout'
}

interface Buffer {
  readonly outbox: Outbox
  add(topic: Topic | 'gap', message: object, at?: { log?: number; activity?: number }): void
  /** Only the latest is sent. */
  replace(topic: Topic, message: object): void
  /** Everything that has been added, as text; empty if nothing was. */
  take(): string
}

function openBuffer(start: Start): Buffer {
  const outbox = openOutbox()
  const messages = new Map<string, object[]>()
  let place = { log: start.log, activity: start.activity === 'now' ? '' : String(start.activity) }
  return {
    outbox,
    add(topic, message, at) {
      const list = messages.get(topic) ?? []
      messages.set(topic, list)
      list.push(message)
      if (at?.log !== undefined) place = { ...place, log: at.log }
      if (at?.activity !== undefined) place = { ...place, activity: String(at.activity) }
      outbox.added()
    },
    replace(topic, message) {
      messages.set(topic, [message])
      outbox.added()
    },
    take() {
      if (messages.size === 0) return ''
      const id = `e${place.log}.a${place.activity}`
      const text = [...messages].map(([topic, list]) => `event: ${topic}\nid: ${id}\ndata: ${JSON.stringify(list)}\n\n`)
      messages.clear()
      outbox.emptied()
      return text.join('')
    },
  }
}
