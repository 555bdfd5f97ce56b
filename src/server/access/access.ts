/**
 * Which requests may pass, and on whose behalf.
 *
 *     request ─► host: the name it was sent to ─► origin: the page that sent it ─► identity: token, cookie, authorize
 *                (origin.ts)                       (origin.ts)                     (here; the cookie is session.ts)
 *
 *     watch (figures) < read < operate (retry, pause, signal, cancel, trigger) < admin (reset, rebuild, delete, write)
 *
 * Guarantees:
 * - Beyond loopback there is a token or `authorize`, or the server does not start.
 * - A page of another origin can neither read an answer nor cause an action: a request that changes something must come
 *   from a page of the same origin, or carry the token in its header.
 * - The role is decided here and nowhere else. The console disables buttons for it, and the server refuses anyway.
 * - A wrong token is compared in constant time, and an address has five attempts a minute.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { InvalidOption } from '../../core/errors.ts'
import { RequestRefused } from '../api/answer.ts'
import { type Role, roles } from '../api/route.ts'
import { openAttempts } from './attempts.ts'
import { checkHost, checkOrigin } from './origin.ts'
import { openSessions, type Session } from './session.ts'

/** The sender of a request, as `authorize` returns it. */
export interface Authorized {
  /** For the audit: the name of a person or of a program. */
  readonly name: string
  readonly role: Role
  /** The tenants it may see. Default: all. */
  readonly tenants?: readonly string[] | undefined
}

export interface AccessOptions {
  /** Sent as `Authorization: Bearer …`, or exchanged for a cookie by the console. */
  token?: string | undefined
  /** The names that requests may be sent to, in addition to those of this machine: `ops.shop.example`. */
  hosts?: readonly string[] | undefined
  /** Decides about each request: returns its sender, or undefined to refuse it. */
  authorize?: ((request: Request) => Authorized | undefined | Promise<Authorized | undefined>) | undefined
  /** Addresses of proxies whose `X-Forwarded-*` headers are believed. Default: none. */
  trustProxy?: readonly string[] | undefined
}

export interface Identity extends Authorized {
  /** How it was found. */
  readonly by: 'loopback' | 'token' | 'session' | 'authorize'
}

/** A request and the address of its sender, where that is known. */
export interface Arrival {
  readonly request: Request
  readonly address: string | undefined
}

export interface Access {
  /** Refuses a request by its host, its origin and its content type. */
  check(arrival: Arrival): void
  /** Undefined if its sender is not known. */
  identify(arrival: Arrival): Promise<Identity | undefined>
  /** Exchanges a token for a cookie. */
  logIn(arrival: Arrival, given: { token: string; name: string | undefined }): { session: Session; cookie: string }
  /** The cookie that ends a session. */
  logOut(arrival: Arrival): string
  readonly hasToken: boolean
}

export interface OpenAccessOptions extends AccessOptions {
  /** The role of the token, and on loopback without a token. */
  readonly role: Role
  /** Whether only this machine can reach it: then no token is needed. */
  readonly isLocal: boolean
  readonly base: string
}

export function openAccess(options: OpenAccessOptions): Access {
  const { token, authorize, role, isLocal, base, hosts = [] } = options
  if (!roles.includes(role))
    throw new InvalidOption({ option: 'access', reason: `The option "access" must be one of ${roles.join(', ')}.` })
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
    throw new InvalidOption({
      option: 'token',
      reason: 'The option "token" must be printable ASCII text without spaces, because it is sent in a header.',
    })
  const expected = token === undefined ? undefined : digestOf(token)
  const attempts = openAttempts(5, 60_000)
  const sessions = token === undefined ? undefined : openSessions(token, base)
  const isOpen = token === undefined && authorize === undefined && isLocal

  /** Digests have the same length, so the time it takes reveals neither the length nor the beginning of the token. */
  const isToken = (given: string, address: string | undefined): boolean => {
    attempts.refuseTooMany(address ?? '')
    const isRight = expected !== undefined && timingSafeEqual(digestOf(given), expected)
    if (!isRight) attempts.failed(address ?? '')
    return isRight
  }

  return {
    hasToken: token !== undefined,
    check({ request }) {
      if (isOpen || hosts.length > 0) checkHost(request, hosts)
      checkOrigin(request)
    },
    async identify({ request, address }) {
      const given = bearerOf(request)
      if (given !== undefined && expected !== undefined)
        return isToken(given, address) ? { name: 'token', role, by: 'token' } : undefined
      const session = sessions?.read(request)
      if (session !== undefined) return { name: session.name, role: session.role, by: 'session' }
      const authorized = await authorize?.(request)
      if (authorized !== undefined) return { ...authorized, by: 'authorize' }
      return isOpen ? { name: 'loopback', role, by: 'loopback' } : undefined
    },
    logIn({ request, address }, given) {
      if (sessions === undefined)
        throw new RequestRefused(409, 'token_missing', 'This server has no token, so there is nothing to log in with.')
      if (!isToken(given.token, address))
        throw new RequestRefused(401, 'unauthenticated', 'The token is not the one that this server was started with.')
      return sessions.begin(request, given.name ?? 'token', role)
    },
    logOut: ({ request }) => sessions?.end(request) ?? '',
  }
}

function bearerOf(request: Request): string | undefined {
  const header = request.headers.get('authorization')
  return header === null ? undefined : (/^Bearer ([\x21-\x7e]+)$/i.exec(header)?.[1] ?? '')
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
