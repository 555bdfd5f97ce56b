/** The events of the list: pages back into the past, and new ones that are counted until they are taken in. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { type Cost, type Refusal, request } from '../api/api.ts'
import { feed, useFeed } from '../api/live.ts'
import { refusalOf } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'

export type ListedEvent = AnswerOf<'GET /events'>['items'][number]

export type EventQuery = Readonly<Record<string, string | undefined>>

export interface EventList {
  readonly events: readonly ListedEvent[]
  readonly fresh: number
  readonly isLoading: boolean
  readonly isEnd: boolean
  /** How far back the search has looked. */
  readonly reached: number | undefined
  readonly error: Refusal | undefined
  readonly at: number | undefined
  readonly cost: Cost | undefined
  takeFresh(): void
  loadMore(): void
  reload(): void
}

const pageSize = 100
/** New events that wait to be taken in; with more of them the list is read again. */
const maxFresh = 2000

interface State {
  readonly asked: string
  readonly events: readonly ListedEvent[]
  readonly next: string | null | undefined
  readonly reached?: number | undefined
  readonly at?: number
  readonly cost?: Cost | undefined
  readonly error?: Refusal | undefined
}

export function useEventList(query: EventQuery): EventList {
  const asked = JSON.stringify(query)
  const [state, setState] = useState<State>({ asked: '', events: [], next: undefined })
  const [isLoading, setLoading] = useState(true)
  const [round, setRound] = useState(0)
  const waiting = useRef<ListedEvent[]>([])
  const [fresh, setFresh] = useState(0)
  const feedRound = feed.round.value

  useEffect(() => {
    const abort = new AbortController()
    waiting.current = []
    setFresh(0)
    setLoading(true)
    request('GET /events', { query: { ...query, limit: pageSize }, signal: abort.signal })
      .then(({ data, cost }) =>
        setState({ asked, events: data.items, next: data.next, reached: data.reached, at: Date.now(), cost }),
      )
      .catch((error: unknown) => {
        if (!abort.signal.aborted)
          setState(old => ({
            ...(old.asked === asked ? old : { asked, events: [], next: null }),
            error: refusalOf(error),
          }))
      })
      .finally(() => {
        if (!abort.signal.aborted) setLoading(false)
      })
    return () => abort.abort()
  }, [asked, round, feedRound])

  const known = state.events[0]?.position ?? 0
  const { since: _, until, userId, headers, ...filter } = query
  const wanted = useMemo(() => Object.entries(JSON.parse(headers ?? '{}') as Record<string, unknown>), [headers])
  useFeed(
    ['events'],
    (topic, messages) => {
      if (topic === 'gap') return setRound(old => old + 1)
      if (topic !== 'events' || until !== undefined) return
      const last = waiting.current.at(-1)?.position ?? known
      waiting.current.push(
        ...(messages as ListedEvent[]).filter(
          event =>
            event.position > last &&
            (userId === undefined || event.userId === userId) &&
            wanted.every(([name, value]) => event.headers[name] === value),
        ),
      )
      if (waiting.current.length > maxFresh) return setRound(old => old + 1)
      setFresh(waiting.current.length)
      if (isAtRest()) take()
    },
    filter,
  )

  const take = (): void => {
    const taken = waiting.current.reverse()
    waiting.current = []
    setFresh(0)
    setState(old => ({ ...old, events: [...taken, ...old.events], at: Date.now() }))
  }
  const loadMore = (): void => {
    const { next } = state
    if (isLoading || next === null || next === undefined) return
    setLoading(true)
    request('GET /events', { query: { ...query, limit: 500, after: next } })
      .then(({ data }) =>
        setState(old =>
          old.asked === asked
            ? { ...old, events: [...old.events, ...data.items], next: data.next, reached: data.reached }
            : old,
        ),
      )
      .catch((error: unknown) => setState(old => ({ ...old, error: refusalOf(error) })))
      .finally(() => setLoading(false))
  }
  return useMemo(
    () => ({
      ...{ events: state.asked === asked ? state.events : [], fresh, isLoading, reached: state.reached },
      ...{ isEnd: state.next === null, error: state.error, at: state.at, cost: state.cost },
      takeFresh: take,
      loadMore,
      reload: () => setRound(old => old + 1),
    }),
    [state, fresh, isLoading, asked],
  )
}

/** Rows may come in by themselves only where no one points or reads: at the top, without the pointer on the list. */
function isAtRest(): boolean {
  return (
    scrollY < 8 &&
    document.querySelector('.page-events table:hover') === null &&
    document.querySelector('.inspector') === null
  )
}
