/** The rail: pages in five groups. A badge stands only where a person is needed. */
import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { pageUrl, place } from '../api/place.ts'
import { capped, quantity } from '../parts/format.ts'
import { Icon, type IconName } from '../parts/icon.tsx'
import { figures } from './figures.ts'
import { views } from './views.ts'
import { ownPath, storeEngine, storeName } from './where.ts'

export interface RailPage {
  readonly path: string
  readonly label: string
  readonly icon: IconName
  /** Follows `g`. */
  readonly key: string
}

export const railGroups: readonly (readonly [label: string, pages: readonly RailPage[]])[] = [
  ['', [{ path: '/', label: 'Overview', icon: 'overview', key: 'o' }]],
  [
    'Data',
    [
      { path: '/events', label: 'Events', icon: 'events', key: 'e' },
      { path: '/streams', label: 'Streams', icon: 'streams', key: 's' },
      { path: '/documents', label: 'Documents', icon: 'documents', key: 'd' },
    ],
  ],
  [
    'Readers',
    [
      { path: '/projections', label: 'Projections', icon: 'projections', key: 'p' },
      { path: '/subscriptions', label: 'Subscriptions', icon: 'subscriptions', key: 'u' },
    ],
  ],
  [
    'Work',
    [
      { path: '/workflows', label: 'Workflows', icon: 'workflows', key: 'w' },
      { path: '/handlers', label: 'Handlers', icon: 'handlers', key: 'h' },
      { path: '/schedules', label: 'Schedules', icon: 'schedules', key: 'c' },
      { path: '/dead-letters', label: 'Dead letters', icon: 'deadLetters', key: 'l' },
    ],
  ],
  [
    'System',
    [
      { path: '/runners', label: 'Runners', icon: 'runners', key: 'r' },
      { path: '/health', label: 'Health', icon: 'health', key: 'i' },
      { path: '/operations', label: 'Operations', icon: 'operations', key: 'a' },
      { path: '/tenants', label: 'Tenants', icon: 'tenants', key: 't' },
    ],
  ],
]

/** On a phone the rail is behind the menu button. */
export const isRailOpen = signal(false)

export function Rail() {
  const { path } = useLocation()
  const here = ownPath(path)
  const open = figures.value?.deadLetters
  useEffect(() => {
    isRailOpen.value = false
  }, [path])
  const isHere = (page: RailPage): boolean =>
    page.path === '/' ? here === '/' : here === page.path || here.startsWith(`${page.path}/`)
  return (
    <aside class={`rail ${isRailOpen.value ? 'is-open' : ''}`} id="rail">
      <a class="store" href={pageUrl('/')}>
        <svg
          class="mark"
          viewBox="0 0 20 20"
          fill="none"
          stroke="currentColor"
          stroke-width="2"
          stroke-linecap="round"
          aria-hidden="true"
        >
          <path d="M3 5.5c3 0 3 3 7 3s4-3 7-3M3 11.5c3 0 3 3 7 3s4-3 7-3" />
        </svg>
        <b class="cut">{storeName.value || 'rillflow'}</b>
        <span class="faint cut">{place.tenant ?? storeEngine.value}</span>
      </a>
      <nav aria-label="Main">
        {railGroups.map(([label, pages]) => {
          const shown = pages.filter(page => page.path !== '/tenants' || place.hasTenants)
          return (
            <div key={label}>
              {label !== '' && <p class="rail-h">{label}</p>}
              <ul>
                {shown.map(page => (
                  <li key={page.path}>
                    <a href={pageUrl(page.path)} title={page.label} aria-current={isHere(page) ? 'page' : undefined}>
                      <Icon name={page.icon} />
                      {page.label}
                      {page.path === '/dead-letters' && open !== undefined && open.count > 0 && (
                        <span class="count">
                          {open.isCapped ? capped(open.count, open.count) : quantity(open.count)}
                          <span class="sr"> open</span>
                        </span>
                      )}
                    </a>
                  </li>
                ))}
              </ul>
            </div>
          )
        })}
        {views.value.length > 0 && (
          <div>
            <p class="rail-h">Views</p>
            <ul>
              {views.value.map(({ name, path: to }) => (
                <li key={name}>
                  <a href={pageUrl('/') + to.slice(1)} title={to}>
                    <Icon name="filter" />
                    <span class="cut">{name}</span>
                  </a>
                </li>
              ))}
            </ul>
          </div>
        )}
      </nav>
      <footer>
        <a href={pageUrl('/settings')}>Settings</a>
        <span>rillflow {place.version}</span>
      </footer>
    </aside>
  )
}
