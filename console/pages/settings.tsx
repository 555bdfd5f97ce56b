/** The taste of this browser, and what this console is connected to. No secret is shown. */
import { request, role } from '../api/api.ts'
import { pageUrl, place } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import { exactTime } from '../parts/format.ts'
import { Button, Choose, Facts, Head, Panel } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { prefer, taste } from '../shell/taste.ts'
import { removeView, views } from '../shell/views.ts'
import { useWhere } from '../shell/where.ts'

export function SettingsPage() {
  useWhere({ label: 'Settings' })
  const store = useReading('GET /')
  const { theme, zone, density } = taste.value
  return (
    <div class="page">
      <Head title="Settings" sub="kept in this browser" />
      <div class="side-2">
        <Panel title="Look">
          <div class="pad settings">
            <div class="setting">
              <span>Theme</span>
              <Choose
                label="Theme"
                value={theme}
                onChoose={value => prefer({ theme: value })}
                choices={[
                  { value: 'system', label: 'As the system' },
                  { value: 'light', label: 'Light' },
                  { value: 'dark', label: 'Dark' },
                ]}
              />
            </div>
            <div class="setting">
              <span>Times</span>
              <Choose
                label="Time zone"
                value={zone}
                onChoose={value => prefer({ zone: value })}
                choices={[
                  { value: 'local', label: 'Local' },
                  { value: 'utc', label: 'UTC' },
                ]}
              />
            </div>
            <div class="setting">
              <span>Rows</span>
              <Choose
                label="Density"
                value={density}
                onChoose={value => prefer({ density: value })}
                choices={[
                  { value: 'dense', label: 'Dense' },
                  { value: 'roomy', label: 'Roomy' },
                ]}
              />
            </div>
          </div>
        </Panel>
        <Panel title="Connection">
          <Show of={store} rows={5}>
            {each => (
              <div class="pad stack-2">
                <Facts
                  facts={[
                    ['Store', each.engine === 'pglite' ? 'embedded' : 'PostgreSQL server'],
                    ['Schema', each.schema, 'mono'],
                    ['Tenant', each.tenant, 'mono'],
                    ['Process', `${each.process.pid} on ${each.process.host}`, 'mono'],
                    ['Since', exactTime(each.process.startedAt)],
                    ['Version', each.version],
                    ['You are', `${each.name}, with the role ${role.value}`],
                  ]}
                />
                {place.canLogIn && (
                  <div class="actions">
                    <Button
                      onClick={() => {
                        request('DELETE /session')
                          .catch(() => {})
                          .finally(() => location.reload())
                      }}
                    >
                      Log out
                    </Button>
                  </div>
                )}
              </div>
            )}
          </Show>
        </Panel>
      </div>
      {views.value.length > 0 && (
        <Panel title="Saved views" sub="addresses with their filters">
          <ul class="effects pad">
            {views.value.map(({ name, path }) => (
              <li key={name}>
                <a href={pageUrl('/') + path.slice(1)}>{name}</a>
                <span class="mono faint cut">{decodeURIComponent(path)}</span>
                <Button kind="bare" small icon="trash" label={`Remove ${name}`} onClick={() => removeView(name)} />
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <p class="faint">
        Keys: press <kbd>?</kbd> on any page. Licence: MIT or Apache-2.0.
      </p>
    </div>
  )
}
