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
  ['/workflows', lazy(() => import('./workflows.tsx').then(module => module.WorkflowsPage))],
  ['/workflows/:id', lazy(() => import('./workflow/workflow.tsx').then(module => module.WorkflowPage))],
  ['/dead-letters', lazy(() => import('./dead-letters.tsx').then(module => module.DeadLettersPage))],
  ['/projections', lazy(() => import('./projections.tsx').then(module => module.ProjectionsPage))],
  ['/projections/:name', lazy(() => import('./projection.tsx').then(module => module.ProjectionPage))],
  ['/subscriptions', lazy(() => import('./subscriptions.tsx').then(module => module.SubscriptionsPage))],
  ['/handlers', lazy(() => import('./handlers.tsx').then(module => module.HandlersPage))],
  ['/schedules', lazy(() => import('./schedules.tsx').then(module => module.SchedulesPage))],
  ['/runners', lazy(() => import('./runners.tsx').then(module => module.RunnersPage))],
  ['/operations', lazy(() => import('./operations.tsx').then(module => module.OperationsPage))],
  ['/health', lazy(() => import('./health.tsx').then(module => module.HealthPage))],
  ['/documents', lazy(() => import('./documents.tsx').then(module => module.DocumentsPage))],
  ['/documents/:name', lazy(() => import('./collection.tsx').then(module => module.CollectionPage))],
  ['/documents/:name/:id', lazy(() => import('./document.tsx').then(module => module.DocumentPage))],
  ['/tenants', lazy(() => import('./tenants.tsx').then(module => module.TenantsPage))],
  ['/settings', lazy(() => import('./settings.tsx').then(module => module.SettingsPage))],
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
