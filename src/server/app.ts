/**
 * One handler for all: monitoring, API and console.
 *
 *     /health/live, /health/ready     open to all
 *     /metrics                        role 'watch'
 *     /api/v1/…                       api/            with the console
 *     /assets/…, and all other paths  console/        with the console
 *
 * Behind a framework or a proxy that strips the prefix, paths arrive without `base`; otherwise with it. Both are
 * understood. Addresses in pages always have it.
 */
import { InvalidOption } from '../core/errors.ts'
import { packageVersion } from '../core/package-version.ts'
import { openAccess } from './access/access.ts'
import { openRedaction } from './access/redact.ts'
import { answerError } from './api/answer.ts'
import { openApi } from './api/api.ts'
import type { Role } from './api/route.ts'
import type { ApiTarget } from './api/source.ts'
import { answerAsset, answerPage } from './console/console.ts'
import { openLiveConnections } from './live/live.ts'
import { json, openMonitoring } from './monitoring.ts'
import type { ConsoleOptions, HttpOptions, ServerSource } from './server.ts'

export interface App {
  /** `address`: that of the sender, where it is known. */
  answer(request: Request, address?: string): Promise<Response>
  /** Ends live feeds. */
  close(): void
}

export interface AppOptions extends HttpOptions {
  readonly isLocal: boolean
  readonly hasApi: boolean
}

export function openApp(sources: () => readonly ServerSource[], target: ApiTarget, options: AppOptions): App {
  const { token, cacheMs = 2_000, isLocal, hasApi } = options
  const base = checkBase(options.base ?? '')
  const consoleOptions: ConsoleOptions = typeof options.console === 'object' ? options.console : {}
  const defaultRole: Role = token === undefined ? 'read' : 'operate'
  const access = openAccess({ ...options, isLocal, base, role: consoleOptions.access ?? defaultRole })
  const monitoring = openMonitoring(sources, { ...options, cacheMs })
  const redact = openRedaction(consoleOptions.redact)
  const live = openLiveConnections()
  const api = hasApi ? openApi({ target, access, monitoring, redact, live, base }) : undefined
  const hasPages = options.console !== undefined && options.console !== false

  async function answer(request: Request, connected: string | undefined): Promise<Response> {
    const { address, prefix } = senderOf(request, connected, options.trustProxy ?? [])
    const path = withoutBase(new URL(request.url).pathname, base)
    const rest = api === undefined ? undefined : afterPrefix(path, '/api/v1')
    if (rest !== undefined) return api!.answer(request, rest === '' ? '/' : rest, address)
    const refused = refuse(request)
    if (refused !== undefined) return refused
    if (path === '/health/live' || path === '/health/ready') return monitoring.answer(path)!
    const arrival = { request, address }
    access.check(arrival)
    const identity = await access.identify(arrival)
    if (hasPages && path !== '/metrics') {
      const name = afterPrefix(path, '/assets/')
      if (name !== undefined)
        return (await answerAsset(name, request)) ?? json(404, { error: 'There is no such file.' })
      const { hasToken: canLogIn } = access
      const hasTenants = target.tenants !== undefined
      const { name: sender, role } = identity ?? {}
      return answerPage({
        base: `${prefix}${base}`,
        name: sender,
        role,
        canLogIn,
        hasTenants,
        version: packageVersion(),
      })
    }
    if (identity === undefined)
      return json(
        401,
        { error: 'Send the token in the header "Authorization: Bearer …".' },
        { 'www-authenticate': 'Bearer' },
      )
    const known = monitoring.answer(path)
    return known ?? json(404, { error: `There is no such path. The paths are ${monitoring.paths.join(', ')}.` })
  }

  return {
    async answer(request, address) {
      try {
        return await answer(request, address)
      } catch (error) {
        return answerError(error, sources()[0]?.log.telemetry)
      }
    },
    close: () => live.close(),
  }
}

interface Sender {
  readonly address: string | undefined
  /** The part of the path that a proxy has taken away. */
  readonly prefix: string
}

/** The headers of a proxy about the sender are believed only if the proxy is one of those that are trusted. */
export function senderOf({ headers }: Request, connected: string | undefined, trusted: readonly string[]): Sender {
  const address = connected?.replace(/^::ffff:/, '')
  if (address === undefined || !trusted.includes(address)) return { address, prefix: '' }
  const forwarded = headers.get('x-forwarded-for')?.split(',').at(-1)?.trim()
  const prefix = headers.get('x-forwarded-prefix')?.replace(/\/$/, '') ?? ''
  return { address: forwarded ?? address, prefix: isPath(prefix) ? prefix : '' }
}

function isPath(text: string): boolean {
  return /^(\/[\w.~-]+)+$/.test(text)
}

function refuse({ method, headers }: Request): Response | undefined {
  if (method !== 'GET' && method !== 'HEAD')
    return json(405, { error: 'Only GET and HEAD are supported.' }, { connection: 'close', allow: 'GET, HEAD' })
  const hasBody = headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) !== 0
  return hasBody ? json(413, { error: 'A request must not have a body.' }, { connection: 'close' }) : undefined
}

function checkBase(base: string): string {
  if (base === '' || base === '/') return ''
  if (!isPath(base.replace(/\/$/, '')))
    throw new InvalidOption({
      option: 'base',
      reason: `The option "base" must be a path such as "/admin/rillflow", not ${JSON.stringify(base)}.`,
    })
  return base.replace(/\/$/, '')
}

function withoutBase(path: string, base: string): string {
  if (base === '') return path
  if (path === base) return '/'
  return path.startsWith(`${base}/`) ? path.slice(base.length) : path
}

function afterPrefix(path: string, prefix: string): string | undefined {
  if (path === prefix || path.startsWith(prefix.endsWith('/') ? prefix : `${prefix}/`)) return path.slice(prefix.length)
  return undefined
}
