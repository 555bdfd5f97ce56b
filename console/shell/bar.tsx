/** The bar: where you are, the search, and whether the page is live. */

import { role } from '../api/api.ts'
import { feed } from '../api/live.ts'
import { pageUrl, place } from '../api/place.ts'
import { now, quantity } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { openPalette } from './palette-state.ts'
import { isRailOpen } from './rail.tsx'
import { taste } from './taste.ts'
import { crumbs } from './where.ts'

export function Bar() {
  const trail = crumbs.value
  return (
    <header class="bar">
      <button
        type="button"
        class="menu"
        aria-label="Menu"
        aria-expanded={isRailOpen.value}
        aria-controls="rail"
        onClick={() => {
          isRailOpen.value = !isRailOpen.value
        }}
      >
        <Icon name={isRailOpen.value ? 'close' : 'menu'} />
      </button>
      <nav aria-label="Where you are">
        <ol class="crumbs">
          {trail.map((crumb, index) => (
            <li
              key={crumb.label}
              aria-current={index === trail.length - 1 ? 'page' : undefined}
              class={crumb.isMono ? 'mono' : ''}
            >
              {crumb.path === undefined || index === trail.length - 1 ? (
                crumb.label
              ) : (
                <a href={pageUrl(crumb.path)}>{crumb.label}</a>
              )}
            </li>
          ))}
        </ol>
      </nav>
      <button type="button" class="seek" onClick={openPalette}>
        <Icon name="search" />
        <span class="cut">Find or do anything</span>
        <kbd>{/mac/i.test(navigator.userAgent) ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      <button type="button" class="menu seek-small" aria-label="Find or do anything" onClick={openPalette}>
        <Icon name="search" />
      </button>
      <Live />
      <span class="bar-rule" />
      <span class="bar-fact">{taste.value.zone === 'utc' ? 'UTC' : 'Local time'}</span>
      <span class="bar-fact" title={place.name}>
        {role.value[0]?.toUpperCase()}
        {role.value.slice(1)}
      </span>
    </header>
  )
}

function Live() {
  const state = feed.state.value
  const text =
    state === 'paused'
      ? feed.missed.value > 0
        ? `Paused, ${quantity(feed.missed.value)} new`
        : 'Paused'
      : state === 'lost'
        ? `Lost, again in ${Math.max(0, Math.ceil((feed.againAt.value - now.value) / 1000))} s`
        : 'Live'
  return (
    <button
      type="button"
      class={`live ${state === 'paused' || state === 'lost' ? 'is-off' : ''}`}
      aria-pressed={state !== 'paused'}
      title={state === 'lost' ? 'Try now' : 'Pause or continue (p)'}
      onClick={() => (state === 'lost' ? feed.tryNow() : feed.togglePause())}
    >
      <span class="dot" />
      {text}
    </button>
  )
}
