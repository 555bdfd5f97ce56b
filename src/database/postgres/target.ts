/**
 * Where the server is: checks the url before the driver reads it, and names the server in errors.
 *
 * The driver reads almost any text as a url and then fails somewhere else: a password with `#` or `/` in it, the url of
 * another database, or several hosts end in "host not found". No message contains the url, because it has a password.
 */
import type pg from 'pg'
import { InvalidOption } from '../../core/errors.ts'
import type { Target } from '../sqlstate.ts'

/** Refuses a url that the driver cannot use, with the reason. */
export function checkUrl(url: string): void {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(url)?.[1]?.toLowerCase()
  if (scheme === undefined && !/^(\/|socket:)/.test(url)) throw refused(`does not begin with a scheme. Write ${form}.`)
  if (scheme !== undefined && !schemes.includes(scheme))
    throw refused(`begins with "${scheme}://", and the store needs a PostgreSQL server. Write ${form}.`)
  const hosts = /^[a-z]+:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(url)?.[1] ?? ''
  if (hosts.includes(',') || /[?&]host=[^&]*(,|%2C)/i.test(url))
    throw refused(
      'names several hosts, and the driver connects to one. Give the address of the primary, or one that follows it.',
    )
  if (scheme === undefined || scheme === 'socket') return
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined || parsed.hash.includes('@'))
    throw refused(
      'cannot be read. In the user and the password the characters : / ? # @ % must be encoded (encodeURIComponent), and the port must be a number up to 65535.',
    )
}

const schemes = ['postgres', 'postgresql', 'socket']
const form = 'postgres://user:password@host:5432/database'

function refused(reason: string): Error {
  return new InvalidOption({ option: 'url', reason: `The option "url" ${reason}` })
}

/** The url for the driver. Its own settings for TLS would win over the option `ssl`, so they are left out then. */
export function connectionString(url: string, ssl: boolean | object | undefined): string {
  if (ssl === undefined || !URL.canParse(url)) return url
  const parsed = new URL(url)
  const given = tlsParameters.filter(name => parsed.searchParams.has(name))
  for (const name of given) parsed.searchParams.delete(name)
  return given.length === 0 ? url : parsed.href
}

const tlsParameters = ['ssl', 'sslmode', 'sslcert', 'sslkey', 'sslrootcert', 'sslnegotiation', 'uselibpqcompat']

/** The server in words. The password is not among them. */
export function describeTarget(pool: { readonly options?: Partial<pg.PoolConfig> }, url: string | undefined): Target {
  const { host, port, user, database } = pool.options ?? {}
  const parsed = url !== undefined && URL.canParse(url) ? new URL(url) : undefined
  return {
    address: `${parsed?.hostname || host || 'localhost'}:${parsed?.port || port || 5432}`,
    user: decoded(parsed?.username) || user || process.env.PGUSER || 'unknown',
    database: decoded(parsed?.pathname.slice(1)) || database || 'unknown',
  }
}

function decoded(text = ''): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
