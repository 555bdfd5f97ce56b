/**
 * The figures of the last 24 hours, in the memory of this process: 5 minutes at 2 s, an hour at 10 s, a day at 2 min.
 * It is sampled every 2 s while a page or a live feed is open and every 10 s otherwise, from the reading that all viewers share.
 * A fresh process knows only how the log has grown, which the times of its events tell.
 */
import { onAbort } from '../../core/abort.ts'
import { openLoop } from '../../core/loop.ts'
import type { Figures, History, HistoryRange, Series } from '../api/contract.ts'
import type { StoreReadings } from '../api/readings.ts'
import type { ApiStore } from '../api/source.ts'

interface Resolution {
  readonly everyMs: number
  readonly points: number
}

const ranges: Readonly<Record<HistoryRange, Resolution>> = {
  '5m': { everyMs: 2_000, points: 150 },
  '1h': { everyMs: 10_000, points: 360 },
  '24h': { everyMs: 120_000, points: 720 },
}
export const historyRanges: readonly HistoryRange[] = ['5m', '1h', '24h']

const maxSeries = 64
const watchedMs = 2_000
const idleMs = 10_000
/** How long after the last request a page is considered to be open. */
const lookMs = 15_000
/** Points of the log's past that a fresh process asks for. */
const pastPoints = 12

export interface Ring {
  /** A page is open: from now on every 2 s. Called for as long as it is. */
  look(): void
  read(range: HistoryRange): Promise<History>
}

/** Samples until the signal aborts. */
export function openRing(store: ApiStore, readings: StoreReadings, signal: AbortSignal): Ring {
  const series = new Map<string, Map<HistoryRange, [at: number, value: number][]>>()
  let lookedAt = Number.NEGATIVE_INFINITY
  let begun: Promise<void> | undefined
  const isLooked = (): boolean => performance.now() - lookedAt < lookMs

  const add = (name: string, at: number, value: number | undefined): void => {
    if (value === undefined || (!series.has(name) && series.size >= maxSeries)) return
    const ofName = series.get(name) ?? new Map(historyRanges.map(range => [range, []]))
    series.set(name, ofName)
    for (const range of historyRanges) {
      const points = ofName.get(range)!
      const { everyMs, points: max } = ranges[range]
      const last = points.at(-1)
      if (last !== undefined && at - last[0] < everyMs * 0.9) continue
      points.push([at, value])
      if (points.length > max) points.shift()
    }
  }
  const sample = async (): Promise<void> => {
    const figures = await readings.figures()
    for (const [name, value] of samplesOf(figures)) add(name, figures.at.getTime(), value)
  }
  const loop = openLoop({
    look: async () => void (await sample()),
    pollMs: () => (isLooked() ? watchedMs : idleMs),
    jitter: 0,
    unref: true,
  })
  onAbort(signal, () => void loop.stop())
  const begin = async (): Promise<void> => {
    for (const range of ['24h', '1h', '5m'] as const)
      for (const [at, rate] of await pastRates(store, range)) {
        const points = series.get('eventsPerSecond') ?? new Map(historyRanges.map(each => [each, []]))
        series.set('eventsPerSecond', points)
        points.get(range)!.push([at, rate])
      }
    await loop.lookNow()
  }
  const start = (): Promise<void> => {
    begun ??= begin().catch(error => {
      begun = undefined
      throw error
    })
    return begun
  }
  /** The first look after a while does not wait for the next sample of an unseen store. */
  const look = (): void => {
    const isFirst = !isLooked()
    lookedAt = performance.now()
    if (isFirst && begun !== undefined) loop.lookSoon()
  }
  return {
    look() {
      look()
      void start().catch(() => {})
    },
    async read(range) {
      look()
      await start()
      const found: Series[] = [...series].map(([name, points]) => ({ name, points: points.get(range)! }))
      return { range, everyMs: ranges[range].everyMs, isOfProcess: true, series: found }
    },
  }
}

function samplesOf(figures: Figures): [name: string, value: number | undefined][] {
  const { executions, handlerTimes } = figures
  return [
    ['position', figures.position],
    ['heldBack', figures.head - figures.position],
    ['queuedP95Ms', handlerTimes?.queuedP95Ms],
    ['ranP50Ms', handlerTimes?.ranP50Ms],
    ['ranP95Ms', handlerTimes?.ranP95Ms],
    ['eventsPerSecond', figures.eventsPerSecond],
    ['executionsPerSecond', figures.executionsPerSecond],
    ['failuresPerSecond', figures.failuresPerSecond],
    ['oldestReadySeconds', figures.oldestReadySeconds],
    ['workflowsActive', figures.workflowsActive],
    ['executionsOpen', Object.values(executions).reduce((sum, count) => sum + count, 0)],
    ['deadLetters', figures.deadLetters.count],
    ['runners', figures.runners.active],
    ...figures.consumers.map(each => [`lagSeconds:${each.name}`, each.lagSeconds] as [string, number]),
  ]
}

/** How fast the log grew before this process began, from the positions at some times. */
async function pastRates(store: ApiStore, range: HistoryRange): Promise<[at: number, rate: number][]> {
  const { everyMs, points } = ranges[range]
  const spanMs = (everyMs * points) / pastPoints
  const now = Date.now()
  const times = Array.from({ length: pastPoints + 1 }, (_, at) => now - spanMs * (pastPoints - at))
  const positions: number[] = []
  for (const time of times) positions.push(await store.events.positionAt(new Date(time)))
  return times.slice(1).map((time, at) => [time, ((positions[at + 1]! - positions[at]!) * 1000) / spanMs])
}
