/** The figures of the store, for badges and tiles: the newest of the feed, and those of the last minutes. */
import { signal } from '@preact/signals'
import type { Figures, Json } from '../../src/server/api/contract.ts'
import { request } from '../api/api.ts'
import { feed } from '../api/live.ts'

export type FiguresNow = Json<Figures>

export const figures = signal<FiguresNow | undefined>(undefined)
/** The last five minutes, a reading every two seconds, the oldest first. */
export const recent = signal<readonly FiguresNow[]>([])

const kept = 150

export function takeFigures(now: FiguresNow): void {
  figures.value = now
  if (recent.value.at(-1)?.at !== now.at) recent.value = [...recent.value, now].slice(-kept)
}

/** Follows the figures for as long as the tab lives. */
export function followFigures(): () => void {
  request('GET /overview')
    .then(({ data }) => takeFigures(data))
    .catch(() => {})
  return feed.listen({
    topics: ['figures'],
    on: (topic, messages) => {
      if (topic === 'figures') for (const message of messages) takeFigures(message as FiguresNow)
    },
  })
}
