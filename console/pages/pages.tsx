/**
 * The pages by path. Each is one file, loaded when it is first opened, and reads what it shows by `useReading`; its filters and
 * its open row are in its address.
 */
import type { FunctionComponent } from 'preact'
import { lazy } from 'preact-iso'
import { pageUrl } from '../api/place.ts'
import { Empty } from '../parts/reading.tsx'
import { useWhere } from '../shell/where.ts'

export const pages: readonly (readonly [path: string, page: FunctionComponent])[] = [
  ['/', lazy(() => import('./overview.tsx').then(module => module.OverviewPage))],
  ['/events', lazy(() => import('./events.tsx').then(module => module.EventsPage))],
  ['/streams', lazy(() => import('./streams.tsx').then(module => module.StreamsPage))],
  ['/streams/:stream', lazy(() => import('./stream.tsx').then(module => module.StreamPage))],
]

export function NotFound() {
  useWhere({ label: 'Not found' })
  return (
    <div class="page">
      <h1 tabIndex={-1}>There is no such page</h1>
      <Empty title="Nothing has this address">
        <p>
          Begin at the{' '}
          <a class="link" href={pageUrl('/')}>
            overview
          </a>
          , or press <kbd>Ctrl K</kbd> to find a thing by its name.
        </p>
      </Empty>
    </div>
  )
}
