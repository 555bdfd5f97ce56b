/** The figures of the store, for badges, tiles and charts: the newest of the feed, and the series of five minutes. */
import { signal } from '@preact/signals'
import type { Figures, Json } from '../../src/server/api/contract.ts'
import { request } from '../api/api.ts'
import { feed } from '../api/live.ts'

export type FiguresNow = Json<Figures>
export type Point = readonly [at: number, value: number]
/** By name: that of a figure, or `lagSeconds:` and a consumer. */
export type SeriesByName = ReadonlyMap<string, readonly Point[]>

export const figures = signal<FiguresNow | undefined>(undefined)
export const recent = signal<SeriesByName>(new Map())

const recentMs = 300_000

/** Follows the figures for as long as the tab lives; after a loss the past is read again. */
export function followFigures(): () => void {
  const unsubscribe = feed.round.subscribe(() => {
    readPast().catch(() => {})
  })
  const unlisten = feed.listen({
    topics: ['figures'],
    on: (topic, messages) => {
      if (topic === 'figures') for (const message of messages) take(message as FiguresNow)
    },
  })
  return () => {
    unsubscribe()
    unlisten()
  }
}

async function readPast(): Promise<void> {
  const { data } = await request('GET /history', { query: { range: '5m' } })
  recent.value = new Map(data.series.map(({ name, points }) => [name, points as unknown as Point[]]))
  const overview = await request('GET /overview')
  take(overview.data)
}

function take(now: FiguresNow): void {
  figures.value = now
  const at = Date.parse(now.at)
  const series = new Map(recent.value)
  for (const [name, value] of samplesOf(now)) {
    if (value === undefined) continue
    const points = series.get(name) ?? []
    if ((points.at(-1)?.[0] ?? 0) < at)
      series.set(name, [...points.filter(([time]) => time > at - recentMs), [at, value]])
  }
  recent.value = series
}

function samplesOf(now: FiguresNow): [name: string, value: number | undefined][] {
  return [
    ['position', now.position],
    ['heldBack', now.head - now.position],
    ['queuedP95Ms', now.handlerTimes?.queuedP95Ms],
    ['ranP50Ms', now.handlerTimes?.ranP50Ms],
    ['ranP95Ms', now.handlerTimes?.ranP95Ms],
    ['eventsPerSecond', now.eventsPerSecond],
    ['executionsPerSecond', now.executionsPerSecond],
    ['failuresPerSecond', now.failuresPerSecond],
    ['oldestReadySeconds', now.oldestReadySeconds],
    ['workflowsActive', now.workflowsActive],
    ['executionsOpen', openExecutions(now)],
    ['deadLetters', now.deadLetters.count],
    ['runners', now.runners.active],
    ...now.consumers.map(each => [`lagSeconds:${each.name}`, each.lagSeconds] as [string, number]),
  ]
}

export function openExecutions(now: FiguresNow): number {
  return Object.values(now.executions).reduce((sum, count) => sum + count, 0)
}
