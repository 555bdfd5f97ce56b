/** Where the console is: its base path, tenant and role, as the server put them into the page at run time. */
import type { Boot } from '../../src/server/console/console.ts'

export interface Place extends Boot {
  /** From the address: `/t/acme/events`. */
  readonly tenant: string | undefined
}

export const place: Place = readPlace()

/** The address of a page of the console: every link goes through it, so slashes are joined in one place. */
export function pageUrl(path: string, query?: Record<string, string | number | undefined>): string {
  const tenant = place.tenant === undefined ? '' : `/t/${encodeURIComponent(place.tenant)}`
  return withQuery(`${place.base}${tenant}${path === '/' && place.base + tenant !== '' ? '' : path}`, query)
}

export function apiUrl(path: string, query?: Record<string, string | number | undefined>, isOfStore = false): string {
  const tenant = place.tenant === undefined || isOfStore ? '' : `/tenants/${encodeURIComponent(place.tenant)}`
  return withQuery(`${place.base}/api/v1${tenant}${path === '/' ? '' : path}`, query)
}

/** `/streams/:stream` with its parameters, each as one segment. */
export function fillPath(path: string, parameters: Record<string, string> = {}): string {
  return path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(parameters[name] ?? ''))
}

export function withQuery(path: string, query: Record<string, string | number | undefined> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return text === '' ? path : `${path}?${text}`
}

function readPlace(): Place {
  const boot = JSON.parse(document.getElementById('boot')?.textContent ?? '{}') as Boot
  const base = (boot.base ?? '').replace(/\/+$/, '')
  const tenant = /^\/t\/([^/]+)/.exec(location.pathname.slice(base.length))?.[1]
  return { ...boot, base, tenant: tenant === undefined ? undefined : decodeURIComponent(tenant) }
}
