/**
 * The shell around every page: rail, bar, palette, questions, and the sentence about the last action.
 *
 *     rail │ bar: crumbs, search, live, zone, role
 *          │ page
 *
 * Keys are registered here for the whole console and by pages for themselves (`keys.ts`). Taste is kept in the browser
 * (`taste.ts`). Everything that a page shows is in its address (`where.ts`).
 */
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useMemo } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { needsToken, request } from '../api/api.ts'
import { feed } from '../api/live.ts'
import { pageUrl } from '../api/place.ts'
import { copyText } from '../parts/copy.tsx'
import { Dialogs } from '../parts/dialog.tsx'
import { now } from '../parts/format.ts'
import { later } from '../parts/later.tsx'
import { Bar } from './bar.tsx'
import { followFigures } from './figures.ts'
import { listenToKeys, useKeys } from './keys.ts'
import { Login } from './login.tsx'
import { isPaletteOpen, openPalette } from './palette-state.ts'
import { Rail, railGroups } from './rail.tsx'
import { SaidLine, say } from './said.tsx'
import { nextTheme } from './taste.ts'
import { storeEngine, storeName } from './where.ts'

const Palette = later(() => import('./palette.tsx').then(module => module.Palette))
const Help = later(() => import('./help.tsx').then(module => module.Help))
const isHelpOpen = signal(false)

export function Shell({ children }: { children: ComponentChildren }) {
  const { route } = useLocation()
  useEffect(() => listenToKeys(), [])
  useEffect(() => (needsToken.value ? undefined : begin()), [needsToken.value])
  const keys = useMemo(
    () => ({
      'mod+k': openPalette,
      p: () => feed.togglePause(),
      t: nextTheme,
      y: copyCommand,
      j: () => stepRows(1),
      k: () => stepRows(-1),
      '?': () => {
        isHelpOpen.value = true
      },
      ...Object.fromEntries(
        railGroups.flatMap(([, pages]) =>
          pages.map(page => [`g ${page.key}`, () => route(pageUrl(page.path))] as const),
        ),
      ),
    }),
    [route],
  )
  useKeys(keys)
  if (needsToken.value) return <Login />
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <div class="app">
        <Rail />
        <Bar />
        <main id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
      {isPaletteOpen.value && <Palette />}
      {isHelpOpen.value && (
        <Help
          onClose={() => {
            isHelpOpen.value = false
          }}
        />
      )}
      <Dialogs />
      <SaidLine />
    </>
  )
}

/** The command line of what is shown: that of the inspector, or the first of the page. */
function copyCommand(): void {
  const line = document.querySelector('.inspector .cli code, aside.panel .cli code, main .cli code')?.textContent
  if (line === undefined || line === null) say('This page has no command line to copy.')
  else copyText(line)
}

/** The link of the next row takes the focus, so that Enter opens it. */
function stepRows(by: number): void {
  const row = document.activeElement?.closest('tbody tr')
  const table = row?.closest('table') ?? document.querySelector('main table tbody tr a')?.closest('table')
  const rows = [...(table?.querySelectorAll('tbody tr') ?? [])].filter(each => each.querySelector('a') !== null)
  const next = rows[row === null || row === undefined ? 0 : rows.indexOf(row) + by]
  next?.querySelector('a')?.focus()
  next?.scrollIntoView({ block: 'nearest' })
}

/** Begins what lives as long as the tab. */
function begin(): () => void {
  const clock = setInterval(() => {
    if (!document.hidden) now.value = Date.now()
  }, 1000)
  const unfollow = followFigures()
  request('GET /')
    .then(({ data }) => {
      storeName.value = data.schema ?? 'rillflow'
      storeEngine.value = data.engine === 'pglite' ? 'embedded' : 'PostgreSQL'
    })
    .catch(() => {})
  return () => {
    clearInterval(clock)
    unfollow()
  }
}
