/** The first page of a store without events: three steps to the first workflow. */

import { role } from '../api/api.ts'
import { useReading } from '../api/reading.ts'
import { Code, Command } from '../parts/copy.tsx'
import { plural } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { useWhere } from '../shell/where.ts'

const append = `await store.events.append('order-1', {
  type: 'OrderPlaced',
  data: { customer: 'You', cents: 1250, items: ['globe'] },
})`
const command = `npx rillflow events append order-1 OrderPlaced '{"customer":"You","cents":1250,"items":["globe"]}'`

export function FirstSteps() {
  useWhere({ label: 'Overview' })
  const store = useReading('GET /')
  const handlers = useReading('GET /handlers')
  const runners = useReading('GET /runners', { everyMs: 5000 })
  const names = [...new Set(handlers.data?.items.map(each => each.handler) ?? [])]
  return (
    <div class="page">
      <div class="first">
        <div class="stack-2">
          <h1 tabIndex={-1}>The store is open and empty</h1>
          <p class="lead">Nothing has been appended to it yet. Three steps, and this page shows your first workflow.</p>
        </div>
        <ol class="path">
          <li>
            <span class="no is-done">
              <Icon name="check" />
            </span>
            <div class="in">
              <h2>The store is there</h2>
              <p class="dim">
                {store.data?.engine === 'pglite' ? 'Embedded' : 'On a PostgreSQL server'}, schema{' '}
                <span class="mono">{store.data?.schema}</span>. It has {plural(names.length, 'handler')}, and{' '}
                {plural(runners.data?.items.length ?? 0, 'runner')} {runners.data?.items.length === 1 ? 'does' : 'do'}{' '}
                the work.
              </p>
            </div>
          </li>
          <li>
            <span class="no is-on">2</span>
            <div class="in">
              <h2>Append the first event</h2>
              <p class="dim">In a second terminal, or from your program. It appears here at once.</p>
              <Command line={command} wrap />
              <Code text={append} />
              <div class="actions">
                <span class="listen">
                  <span class="dot" />
                  Waiting for the first event
                </span>
                {role.value === 'read' && <span class="faint">this session may only read</span>}
              </div>
            </div>
          </li>
          <li>
            <span class="no">3</span>
            <div class="in">
              <h2>Watch what it causes</h2>
              <p class="dim">
                {names.length > 0 ? (
                  <>
                    <span class="mono">{names.slice(0, 5).join(', ')}</span> run because of events.{' '}
                  </>
                ) : (
                  'Handlers, projections and subscriptions run because of events. '
                )}
                A failure is tried again; what fails for good waits under Dead letters.
              </p>
            </div>
          </li>
        </ol>
        <p class="faint">
          Events from elsewhere? <span class="mono">npx rillflow events import events.ndjson</span> brings them in.
        </p>
      </div>
    </div>
  )
}
