/**
 * Where a request was sent to, and from which page.
 *
 * - Host: a page can point a name of its own at 127.0.0.1 and then read our answers as its own. Such a request arrives
 *   with that name in its Host, so on loopback only names of this machine pass, and those in `hosts`.
 * - Origin: a browser says with `Sec-Fetch-Site` which page sent a request. Over plain HTTP beyond loopback it does not,
 *   so `Origin` must then be equal to Host. A request with a Bearer token uses no cookie and needs neither.
 */
import { isIP } from 'node:net'
import { RequestRefused } from '../api/answer.ts'

export function checkHost(request: Request, hosts: readonly string[]): void {
  const host = hostOf(request).replace(/:\d+$/, '')
  if (isLoopback(host) || hosts.some(each => each.toLowerCase() === host.toLowerCase())) return
  throw new RequestRefused(
    403,
    'forbidden',
    'Send the request to localhost or to 127.0.0.1, start the server with a token, or name this host in the option "hosts".',
  )
}

/** Whether this name or address is one of this machine alone. */
export function isLoopback(host: string): boolean {
  const address = host.replace(/^\[(.*)\]$/, '$1').toLowerCase()
  return address === 'localhost' || address === '::1' || (isIP(address) === 4 && address.startsWith('127.'))
}

export function checkOrigin(request: Request): void {
  const { method, headers } = request
  const site = headers.get('sec-fetch-site')
  if (headers.has('authorization')) return
  if (method === 'GET' || method === 'HEAD') {
    const isPage = headers.get('sec-fetch-mode') === 'navigate'
    if (site === 'cross-site' && !isPage) throw foreign()
    return
  }
  if (site !== null ? site !== 'same-origin' : !isSameOrigin(request)) throw foreign()
}

/** Simple requests of a form on another page have none of our content type. */
export function checkContentType(request: Request): void {
  const type = request.headers.get('content-type')?.split(';', 1)[0]?.trim().toLowerCase()
  if (type !== 'application/json')
    throw new RequestRefused(415, 'unsupported_content_type', 'Send the header "Content-Type: application/json".')
}

function isSameOrigin(request: Request): boolean {
  const origin = request.headers.get('origin')
  if (origin === null) return false
  return URL.canParse(origin) && new URL(origin).host === hostOf(request)
}

function hostOf(request: Request): string {
  return request.headers.get('host') ?? new URL(request.url).host
}

function foreign(): RequestRefused {
  return new RequestRefused(
    403,
    'forbidden',
    'The request does not come from a page of this server. Send the header "Origin" with its address, or the token in the header "Authorization: Bearer …".',
  )
}
