/**
 * How a store proves its identity and protects its connections: the password of a role, and TLS.
 *
 *     password: 'text'                         as in the url; it wins over the url
 *     password: { env: 'SHOP_PASSWORD' }       read from the environment for each connection
 *     password: { file: '/run/secrets/db' }    read from a file for each connection, without its last line break
 *     password: () => token()                  asked for each connection: tokens that expire
 *
 * A secret that is given by reference is never part of an option, so it is in no message, no log and no copy of them.
 *
 * A server on another machine is reached by TLS, and its certificate is checked, unless the url or the option `ssl` says
 * otherwise. A server that offers no TLS is then refused with a sentence; the doctor warns of connections without TLS.
 */
import { readFile } from 'node:fs/promises'
import type pg from 'pg'
import { InvalidOption } from '../../core/errors.ts'

/** A password, or where it is kept. */
export type Secret = string | { readonly env: string } | { readonly file: string } | (() => string | Promise<string>)

/** The options with TLS where nothing is said about it and the server is on another machine. */
export function withDefaultTls<O extends { url?: string | undefined; ssl?: boolean | object | undefined }>(
  options: O,
): O {
  const { url, ssl } = options
  if (url === undefined || ssl !== undefined || process.env.PGSSLMODE || !isElsewhere(url)) return options
  return { ...options, ssl: true }
}

/** Whether a url that says nothing about TLS names another machine. */
function isElsewhere(url: string): boolean {
  if (!URL.canParse(url)) return false
  const { hostname, searchParams } = new URL(url)
  if ([...searchParams.keys()].some(name => name.startsWith('ssl'))) return false
  const host = (searchParams.get('host') ?? (decodeURIComponent(hostname) || process.env.PGHOST)) || 'localhost'
  return !/^(localhost|.*\.localhost|127(\.\d+){3}|\[?::1\]?|\/.*)$/i.test(host)
}

/** The driver with clients that ask for the password whenever they connect. */
export function withPassword(driver: typeof pg, password: Secret | undefined): typeof pg {
  if (password === undefined) return driver
  const secret = password
  checkSecret(secret)
  const Client = class extends driver.Client {
    constructor(config?: string | pg.ClientConfig) {
      super(config)
      // The driver calls a function when the server asks for a password.
      Object.defineProperty(this, 'password', { value: () => readSecret(secret), writable: true, configurable: true })
    }
  }
  return Object.create(driver, { Client: { value: Client } }) as typeof pg
}

function checkSecret(secret: unknown): void {
  const { env, file } = (secret ?? {}) as { env?: unknown; file?: unknown }
  if (typeof secret === 'string' || typeof secret === 'function') return
  if ((typeof env === 'string') !== (typeof file === 'string')) return
  throw new InvalidOption({
    option: 'password',
    reason:
      'The option "password" must be a text, { env: NAME }, { file: PATH }, or a function that returns the password.',
  })
}

async function readSecret(secret: Secret): Promise<string> {
  if (typeof secret === 'string') return secret
  if (typeof secret === 'function') return secret()
  if ('file' in secret) return (await readFile(secret.file, 'utf8')).replace(/\r?\n$/, '')
  const found = process.env[secret.env]
  if (found !== undefined && found !== '') return found
  throw new InvalidOption({
    option: 'password',
    reason: `The option "password" refers to the environment variable ${secret.env}, which is not set.`,
  })
}
