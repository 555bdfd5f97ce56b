/**
 * The cookie of the console: name, role and end under an HMAC whose key is derived from the token. So a session survives
 * a restart and works in several processes, and ends when the token changes. Scripts cannot read it, other sites cannot
 * cause it to be sent.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { type Role, roles } from '../api/route.ts'

export interface Session {
  readonly name: string
  readonly role: Role
  readonly expiresAt: Date
}

export interface Sessions {
  begin(request: Request, name: string, role: Role): { session: Session; cookie: string }
  read(request: Request): Session | undefined
  end(request: Request): string
}

const cookieName = 'rillflow_session'
const lifeMs = 12 * 3_600_000

export function openSessions(token: string, base: string): Sessions {
  const key = createHmac('sha256', token).update('rillflow console session').digest()
  const sign = (text: string): Buffer => createHmac('sha256', key).update(text).digest()

  const cookie = (request: Request, value: string, seconds: number): string => {
    const isSecure = new URL(request.url).protocol === 'https:' || request.headers.get('x-forwarded-proto') === 'https'
    const path = base === '' ? '/' : base
    return `${cookieName}=${value}; Path=${path}; Max-Age=${seconds}; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`
  }

  return {
    begin(request, name, role) {
      const session = { name: name.slice(0, 100), role, expiresAt: new Date(Date.now() + lifeMs) }
      const content = Buffer.from(JSON.stringify(session)).toString('base64url')
      const value = `${content}.${sign(content).toString('base64url')}`
      return { session, cookie: cookie(request, value, lifeMs / 1000) }
    },
    read(request) {
      const given = cookieOf(request)
      const [content = '', signature = ''] = given?.split('.') ?? []
      const expected = sign(content)
      const actual = Buffer.from(signature, 'base64url')
      if (actual.length !== expected.length || !timingSafeEqual(actual, expected)) return undefined
      const { name, role, expiresAt } = JSON.parse(Buffer.from(content, 'base64url').toString()) as Session
      const session = { name, role, expiresAt: new Date(expiresAt) }
      return session.expiresAt.getTime() > Date.now() && roles.includes(role) ? session : undefined
    },
    end: request => cookie(request, '', 0),
  }
}

function cookieOf(request: Request): string | undefined {
  for (const each of request.headers.get('cookie')?.split(/; */) ?? [])
    if (each.startsWith(`${cookieName}=`)) return each.slice(cookieName.length + 1)
  return undefined
}
