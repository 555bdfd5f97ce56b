/**
 * Which requests may pass. `/health/*` is open to all. Every other path needs the token if there is one, and beyond
 * loopback there must be one. On loopback without a token, the request must also have been sent to a name of this machine:
 * otherwise a page in a browser could read the answer through a name of its own that resolves to 127.0.0.1.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import { InvalidOption } from '../core/errors.ts'

export interface AccessOptions {
  readonly host: string
  readonly token: string | undefined
}

/** Returns undefined if the request may pass, otherwise the status to refuse it with. */
export type Access = (request: IncomingMessage) => 401 | 403 | undefined

export function openAccess({ host, token }: AccessOptions): Access {
  if (token === undefined) {
    if (isLoopback(host)) return ({ headers }) => (isLoopback(hostOf(headers.host)) ? undefined : 403)
    const reason = `The option "token" is needed to listen on ${host}: other machines may read /metrics only with a token.`
    throw new InvalidOption({ option: 'token', reason })
  }
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new InvalidOption({
      option: 'token',
      reason: 'The option "token" must be printable ASCII text without spaces, because it is sent in a header.',
    })
  const expected = digestOf(token)
  return ({ headers }) => {
    const given = /^Bearer ([\x21-\x7e]+)$/i.exec(headers.authorization ?? '')?.[1] ?? ''
    // Digests have the same length, so the time it takes reveals neither the length nor the beginning of the token.
    return timingSafeEqual(digestOf(given), expected) ? undefined : 401
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
