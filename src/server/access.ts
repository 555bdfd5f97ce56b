/**
 * Who may see what. `/health/*` is for anybody. The rest needs the token if there is one, and there must be one beyond
 * loopback; on loopback without a token the request must also have been sent to this machine by a name of its own, or a
 * page in a browser could read it through a name that it makes point here.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import { InvalidOption } from '../core/errors.ts'

export interface AccessOptions {
  readonly host: string
  readonly token: string | undefined
}

/** Undefined if it may pass, else the status to refuse it with. */
export type Access = (request: IncomingMessage) => 401 | 403 | undefined

export function openAccess({ host, token }: AccessOptions): Access {
  if (token === undefined) {
    if (isLoopback(host)) return ({ headers }) => (isLoopback(hostOf(headers.host)) ? undefined : 403)
    const reason = `is needed to listen on ${host}: beyond this machine /metrics is only for those who know it`
    throw new InvalidOption({ option: 'token', reason })
  }
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new InvalidOption({ option: 'token', reason: 'must be text without spaces that a header can carry' })
  const wanted = digestOf(token)
  return ({ headers }) => {
    const given = /^Bearer ([\x21-\x7e]+)$/i.exec(headers.authorization ?? '')?.[1] ?? ''
    // Of digests, which are equally long: neither its length nor its beginning can be found out by the time it takes.
    return timingSafeEqual(digestOf(given), wanted) ? undefined : 401
  }
}

export function isLoopback(host: string): boolean {
  const address = host.replace(/^\[(.*)\]$/, '$1').toLowerCase()
  return address === 'localhost' || address === '::1' || (isIP(address) === 4 && address.startsWith('127.'))
}

/** Without the port. */
function hostOf(header: string | undefined): string {
  return header?.replace(/:\d+$/, '') ?? ''
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
