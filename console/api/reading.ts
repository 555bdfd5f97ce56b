/** A reading of a route for a page: its data, its error, and how old it is. Old data stays while new data is on its way. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { type Cost, Refusal, type RequestOptions, request } from './api.ts'
import { feed } from './live.ts'
import type { AnswerOf, Key } from './routes.ts'

export interface Reading<T> {
  readonly data: T | undefined
  readonly error: Refusal | undefined
  /** When the data was read. */
  readonly at: number | undefined
  readonly cost: Cost | undefined
  readonly isLoading: boolean
  reload(): void
}

export interface ReadingOptions extends Omit<RequestOptions, 'signal'> {
  /** Reads it again this often while the page is live and seen. Default: never. */
  readonly everyMs?: number | undefined
  /** Waits while it is false. */
  readonly when?: boolean | undefined
}

interface State<T> {
  readonly of: string
  readonly data?: T
  readonly error?: Refusal | undefined
  readonly at?: number
  readonly cost?: Cost | undefined
  readonly isLoading: boolean
}

export function useReading<K extends Key>(key: K, options: ReadingOptions = {}): Reading<AnswerOf<K>> {
  const { parameters, query, body, everyMs, when = true } = options
  const of = `${key} ${JSON.stringify(parameters ?? {})}`
  const asked = `${of} ${JSON.stringify([query, body])}`
  const [state, setState] = useState<State<AnswerOf<K>>>({ of, isLoading: true })
  const [round, setRound] = useState(0)
  const isBusy = useRef(false)

  useEffect(() => {
    if (!when) return
    const abort = new AbortController()
    isBusy.current = true
    request(key, { parameters, query, body, signal: abort.signal })
      .then(({ data, cost }) => setState({ of, data, cost, at: Date.now(), isLoading: false }))
      .catch((error: unknown) => {
        if (!abort.signal.aborted)
          setState(old => ({ ...(old.of === of ? old : { of }), error: refusalOf(error), isLoading: false }))
      })
      .finally(() => {
        isBusy.current = false
      })
    return () => abort.abort()
  }, [asked, round, when])

  useEffect(() => {
    if (everyMs === undefined) return
    const timer = setInterval(() => {
      if (!isBusy.current && !document.hidden && feed.isFollowing()) setRound(old => old + 1)
    }, everyMs)
    return () => clearInterval(timer)
  }, [everyMs])

  const isOwn = state.of === of
  return useMemo(
    () => ({
      data: isOwn ? state.data : undefined,
      error: isOwn ? state.error : undefined,
      at: isOwn ? state.at : undefined,
      cost: isOwn ? state.cost : undefined,
      isLoading: !isOwn || state.isLoading,
      reload: () => setRound(old => old + 1),
    }),
    [state, isOwn],
  )
}

export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error
  return new Refusal(0, 'console_failed', error instanceof Error ? error.message : String(error))
}
