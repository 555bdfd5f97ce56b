/**
 * The console: a program of the browser that shows a store and acts on it, by the HTTP API alone.
 *
 *     main.tsx ─► shell/ (rail, bar, palette, keys, taste) ─► pages/ (one file a screen) ─► parts/, json/
 *                                                               └─► api/ (requests, readings, the live feed)
 *
 * Laws:
 * - Everything a page shows is in its address, so a link opens the same for a colleague.
 * - The server decides, the page follows: an action that is not allowed is shown, with the reason.
 * - Nothing moves under the pointer: new rows are counted, then taken in.
 * - No markup is made from text, no style attribute exists, no other origin is asked: the policy of the page forbids all.
 * - The shell loads first; a page, uPlot and the editor are loaded with their first use.
 */
import { render } from 'preact'
import { ErrorBoundary, LocationProvider, Route, Router } from 'preact-iso'
import { pageUrl } from './api/place.ts'
import { NotFound, pages } from './pages/pages.tsx'
import { Shell } from './shell/shell.tsx'

/** A new page gets the focus on its title, so that a screen reader begins there. */
function focusTitle(): void {
  requestAnimationFrame(() => document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true }))
}

function Console() {
  return (
    <LocationProvider>
      <Shell>
        <ErrorBoundary onError={reloadOnce}>
          <Router onRouteChange={focusTitle}>
            {pages.map(([path, page]) => (
              <Route
                key={path}
                path={path === '/' ? pageUrl('/') : pageUrl('/') === '/' ? path : pageUrl('/') + path}
                component={page}
              />
            ))}
            <Route default component={NotFound} />
          </Router>
        </ErrorBoundary>
      </Shell>
    </LocationProvider>
  )
}

/** A file of an older build is gone when the server was updated: the page of the new one has the new names. */
function reloadOnce(error: Error): void {
  if (!/import|fetch/i.test(error.message) || sessionStorage.getItem('rillflow.reloaded') === location.href) throw error
  sessionStorage.setItem('rillflow.reloaded', location.href)
  location.reload()
}

const app = document.getElementById('app')
if (app !== null) render(<Console />, app)
