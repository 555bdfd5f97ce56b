/**
 * The live feed: one connection for the tab, by server-sent events. It closes ten seconds after the tab is hidden and
 * continues where it was; after a loss it comes back by itself and says how long that takes.
 *
 *     feed.listen({ topics: ['events'], query: { types }, on: (topic, messages) => … })
 */
import { signal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { apiUrl } from './place.ts'

export type Topic = 'figures' | 'events' | 'activity' | 'deadLetters' | 'operations' | 'gap'

export interface Listener {
  readonly topics: readonly Topic[]
  readonly query?: Record<string, string | undefined> | undefined
  readonly on: (topic: Topic, messages: readonly unknown[]) => void
}

export type FeedState = 'connecting' | 'live' | 'paused' | 'lost'

const hiddenMs = 10_000
const againMs = 4000
const topics: readonly Topic[] = ['figures', 'events', 'activity', 'deadLetters', 'operations', 'gap']

const listeners = new Set<Listener>()
const state = signal<FeedState>('connecting')
/** When a lost connection is tried again. */
const againAt = signal(0)
/** Events that came while the page is paused. */
const missed = signal(0)
/** Grows when pages have to read again: after a pause, and after a loss. */
const round = signal(0)

let source: EventSource | undefined
let opened = ''
let lastId = ''
let timer: ReturnType<typeof setTimeout> | undefined

export const feed = {
  state,
  againAt,
  missed,
  round,
  isFollowing: (): boolean => state.value !== 'paused',
  listen(listener: Listener): () => void {
    listeners.add(listener)
    queueMicrotask(connect)
    return () => {
      listeners.delete(listener)
      queueMicrotask(connect)
    }
  },
  togglePause(): void {
    if (state.value === 'paused') {
      state.value = source?.readyState === EventSource.OPEN ? 'live' : 'connecting'
      missed.value = 0
      round.value++
    } else state.value = 'paused'
  },
  tryNow(): void {
    close()
    connect()
  },
}

/** Listens while a component is shown. */
export function useFeed(topicNames: readonly Topic[], on: Listener['on'], query?: Listener['query']): void {
  const latest = useRef(on)
  latest.current = on
  const wanted = JSON.stringify([topicNames, query])
  useEffect(() => {
    const [names, filter] = JSON.parse(wanted) as [Topic[], Record<string, string> | undefined]
    return feed.listen({ topics: names, query: filter, on: (topic, messages) => latest.current(topic, messages) })
  }, [wanted])
}

function connect(): void {
  const url = address()
  if (url === undefined) {
    close()
    return
  }
  if (source !== undefined && url === opened) return
  close()
  opened = url
  source = new EventSource(lastId === '' ? url : `${url}&after=${encodeURIComponent(lastId)}`)
  source.onopen = () => {
    if (state.value === 'lost') round.value++
    if (state.value !== 'paused') state.value = 'live'
  }
  source.onerror = lost
  for (const topic of topics) source.addEventListener(topic, event => take(topic, event as MessageEvent<string>))
}

/** Undefined while there is nothing to listen to. */
function address(): string | undefined {
  const names = new Set([...listeners].flatMap(each => each.topics).filter(topic => topic !== 'gap'))
  if (names.size === 0) return undefined
  const query = Object.assign({}, ...[...listeners].map(each => each.query ?? {})) as Record<string, string | undefined>
  return apiUrl('/live', { topics: [...names].sort().join(','), ...query })
}

function take(topic: Topic, event: MessageEvent<string>): void {
  if (event.lastEventId !== '') lastId = event.lastEventId
  const data: unknown = JSON.parse(event.data)
  const messages = Array.isArray(data) ? data : [data]
  if (state.value === 'paused') {
    if (topic === 'events') missed.value += messages.length
    return
  }
  if (state.value !== 'live') state.value = 'live'
  for (const listener of listeners) if (topic === 'gap' || listener.topics.includes(topic)) listener.on(topic, messages)
}

function lost(): void {
  close()
  if (state.value !== 'paused') state.value = 'lost'
  againAt.value = Date.now() + againMs
  timer = setTimeout(connect, againMs)
}

function close(): void {
  clearTimeout(timer)
  source?.close()
  source = undefined
  opened = ''
}

let hidden: ReturnType<typeof setTimeout> | undefined
document.addEventListener('visibilitychange', () => {
  clearTimeout(hidden)
  if (document.hidden) hidden = setTimeout(close, hiddenMs)
  else connect()
})
