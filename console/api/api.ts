/**
 * The API, typed by the table of routes of the server. Nothing here knows a page.
 *
 *     request('GET /streams/:stream', { stream })        one answer, or a `Refusal`
 *     useReading('GET /streams/:stream', { … })          the same for a page: data, error, reload, refresh while live
 *     live.ts                                            the feed: one connection for the tab
 *     place.ts                                           base path, tenant, role
 */
import { signal } from '@preact/signals'
import type { Refused } from '../../src/server/api/contract.ts'
import type { Role } from '../../src/server/api/route.ts'
import { apiUrl, fillPath, place } from './place.ts'
import type { AnswerOf, Key } from './routes.ts'

export interface RequestOptions {
  readonly parameters?: Record<string, string> | undefined
  readonly query?: Record<string, string | number | undefined> | undefined
  readonly body?: unknown
  readonly headers?: Record<string, string> | undefined
  readonly signal?: AbortSignal | undefined
}

/** An answer that is not the wanted one. `status` 0: the server was not reached. */
export class Refusal extends Error {
  readonly status: number
  readonly code: string
  readonly data: Readonly<Record<string, unknown>>

  constructor(status: number, code: string, message: string, data: Readonly<Record<string, unknown>> = {}) {
    super(message)
    this.status = status
    this.code = code
    this.data = data
  }
}

export interface Cost {
  readonly statements: number
  readonly ms: number
}

export interface Answered<T> {
  readonly data: T
  readonly cost: Cost | undefined
}

/** True once the server has asked for a token. */
export const needsToken = signal(place.role === undefined && place.canLogIn)

export async function request<K extends Key>(key: K, options: RequestOptions = {}): Promise<Answered<AnswerOf<K>>> {
  const [method = 'GET', path = '/'] = key.split(' ')
  const url = apiUrl(fillPath(path, options.parameters), options.query, path.startsWith('/session'))
  const response = await send(url, {
    method,
    headers: { ...(method !== 'GET' && { 'content-type': 'application/json' }), ...options.headers },
    ...(method !== 'GET' && { body: JSON.stringify(options.body ?? {}) }),
    ...(options.signal !== undefined && { signal: options.signal }),
  })
  const body = await bodyOf(response)
  if (response.ok) return { data: body as AnswerOf<K>, cost: costOf(response) }
  const refused = (body as Partial<Refused> | undefined)?.error
  if (response.status === 401) needsToken.value = true
  throw new Refusal(
    response.status,
    refused?.code ?? `http_${response.status}`,
    refused?.message ?? `The server answered ${response.status}.`,
    refused?.data,
  )
}

async function send(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...init, credentials: 'same-origin' })
  } catch (error) {
    if (init.signal?.aborted) throw error
    throw new Refusal(0, 'unreachable', 'The server does not answer. Is its process running?')
  }
}

async function bodyOf(response: Response): Promise<unknown> {
  const text = await response.text()
  try {
    return text === '' ? undefined : JSON.parse(text)
  } catch {
    return undefined
  }
}

/** `server-timing: db;dur=4.1;desc="3 statements"` */
function costOf(response: Response): Cost | undefined {
  const header = response.headers.get('server-timing') ?? ''
  const ms = /\bdb;[^,]*dur=([\d.]+)/.exec(header)?.[1]
  const statements = /desc="(\d+)/.exec(header)?.[1]
  return ms === undefined ? undefined : { ms: Number(ms), statements: Number(statements ?? 1) }
}

const roles: readonly Role[] = ['watch', 'read', 'operate', 'admin']

/** The role of this session, as the server has it. */
export const role = signal<Role>(place.role ?? 'watch')

/** Why an action is refused here, in words; undefined if it is allowed. The server decides in any case. */
export function refusedFor(needed: Role): string | undefined {
  return roles.indexOf(role.value) >= roles.indexOf(needed) ? undefined : `needs the role ${needed}`
}
