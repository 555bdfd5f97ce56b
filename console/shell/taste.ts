/** The taste of a person: theme, time zone, density, the range of charts. Kept in this browser. */
import { effect, signal } from '@preact/signals'

export interface Taste {
  theme: 'system' | 'light' | 'dark'
  zone: 'utc' | 'local'
  density: 'dense' | 'roomy'
  range: '5m' | '1h' | '24h'
}

const key = 'rillflow.taste'
const standard: Taste = { theme: 'system', zone: 'local', density: 'dense', range: '5m' }

export const taste = signal<Taste>(stored())

export function prefer(change: Partial<Taste>): void {
  taste.value = { ...taste.value, ...change }
}

/** Light, dark, then that of the system again. */
export function nextTheme(): void {
  const isDark = matchMedia('(prefers-color-scheme: dark)').matches
  const order: Taste['theme'][] = isDark ? ['system', 'light', 'dark'] : ['system', 'dark', 'light']
  prefer({ theme: order[(order.indexOf(taste.value.theme) + 1) % order.length]! })
}

effect(() => {
  const { theme, density } = taste.value
  const root = document.documentElement
  if (theme === 'system') delete root.dataset.theme
  else root.dataset.theme = theme
  root.dataset.density = density
  try {
    localStorage.setItem(key, JSON.stringify(taste.value))
  } catch {
    // A browser without storage forgets the taste, and everything else works.
  }
})

function stored(): Taste {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? '{}')
    return { ...standard, ...(typeof found === 'object' && found !== null ? found : {}) }
  } catch {
    return standard
  }
}
