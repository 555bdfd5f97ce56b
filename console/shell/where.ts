/** Where the page is: the title of the tab and the crumbs of the bar, and the query of its address. */
import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { pageUrl, withQuery } from '../api/place.ts'

export interface Crumb {
  readonly label: string
  readonly path?: string
  readonly isMono?: boolean
}

export const crumbs = signal<readonly Crumb[]>([])
export const storeName = signal('')
export const storeEngine = signal('')

export function useWhere(...trail: Crumb[]): void {
  const text = JSON.stringify(trail)
  useEffect(() => {
    const list = JSON.parse(text) as Crumb[]
    crumbs.value = list
    const names = [...list].reverse().map(({ label }) => label)
    document.title = [...names, storeName.value, 'Rillflow'].filter(name => name !== '').join(' – ')
  }, [text])
}

export interface Address {
  readonly query: Readonly<Record<string, string | undefined>>
  /** The address of this page with other values in its query; undefined takes one out. */
  with(change: Record<string, string | number | undefined>): string
  /** Goes there; the history has no entry of it. */
  replace(change: Record<string, string | number | undefined>): void
  push(change: Record<string, string | number | undefined>): void
  go(path: string): void
}

export function useAddress(): Address {
  const { path, query, route } = useLocation()
  const withChange = (change: Record<string, string | number | undefined>): string =>
    withQuery(path, { ...query, ...change })
  return {
    query,
    with: withChange,
    replace: change => route(withChange(change), true),
    push: change => route(withChange(change)),
    go: to => route(to),
  }
}

/** The path of the page without base and tenant: `/streams/order-1`. */
export function ownPath(path: string): string {
  const start = pageUrl('/') === '/' ? '' : pageUrl('/')
  return path.startsWith(start) ? path.slice(start.length) || '/' : path
}
