/**
 * A route is data: its method and path, the role it needs, its parameters, its line on the command line, and its call.
 * Routing, validation, `openapi.json`, the reference and the types of the browser program are all made from it, so they
 * cannot disagree.
 *
 *     route('GET /streams', {
 *       role: 'read',
 *       summary: 'Streams by name',
 *       query: { ...pageFields, prefix: { kind: 'text', summary: 'Only names that begin with it' } },
 *       cli: 'rillflow streams list',
 *       call: ({ store, query }) => store.streams.list(query),
 *     })
 */
import { InvalidOption } from '../../core/errors.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import type { Contract } from './contract.ts'
import type { ApiRequest } from './request.ts'

/** Each role may do what those before it may. */
export type Role = 'watch' | 'read' | 'operate' | 'admin'
export const roles: readonly Role[] = ['watch', 'read', 'operate', 'admin']

export function mayAct(role: Role, needed: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(needed)
}

/** `GET /streams/:stream`. */
export type RouteKey = keyof Contract & string

export interface Route {
  readonly key: RouteKey
  readonly method: Method
  readonly path: string
  /** 'open' needs no identity. */
  readonly role: Role | 'open'
  readonly summary: string
  readonly query: Fields
  /** Undefined if it takes no body. */
  readonly body: Fields | undefined
  /** The status of success. */
  readonly status: 200 | 202
  /** The same on the command line; `{name}` stands for a parameter. */
  readonly cli: string | undefined
  /** Whether it belongs to the whole store and not to one tenant. */
  readonly isOfStore: boolean
  /** The action in the audit, for calls that the store itself does not record. */
  readonly audit: string | undefined
  readonly call: (request: ApiRequest<never, never, never>) => Promise<unknown>
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

export type Fields = Readonly<Record<string, Field>>

export interface Field {
  /** `list`: texts with commas between them. `time`: ISO 8601. `json`: any value, only in a body. */
  readonly kind: 'text' | 'whole' | 'flag' | 'time' | 'list' | 'json'
  readonly summary: string
  readonly choices?: readonly string[] | undefined
  readonly min?: number | undefined
  readonly max?: number | undefined
  readonly required?: true | undefined
}

type NoFields = Readonly<Record<never, Field>>

interface Kinds {
  text: string
  whole: number
  flag: boolean
  time: Date
  list: readonly string[]
  json: unknown
}

export type ValuesOf<F extends Fields> = {
  readonly [Name in keyof F]: ValueOf<F[Name]> | (F[Name] extends { required: true } ? never : undefined)
}

type ValueOf<F extends Field> = F extends { choices: readonly (infer C)[]; kind: 'text' } ? C : Kinds[F['kind']]

/** The names in the path of a key. */
type ParametersOf<Key extends string> = Key extends `${string}:${infer Name}/${infer Rest}`
  ? Name | ParametersOf<Rest>
  : Key extends `${string}:${infer Name}`
    ? Name
    : never

export interface RouteOptions<K extends RouteKey, Q extends Fields, B extends Fields> {
  readonly role: Role | 'open'
  readonly summary: string
  readonly query?: Q | undefined
  readonly body?: B | undefined
  readonly status?: 200 | 202 | undefined
  readonly cli?: string | undefined
  readonly isOfStore?: boolean | undefined
  readonly audit?: string | undefined
  call(request: ApiRequest<Record<ParametersOf<K>, string>, ValuesOf<Q>, ValuesOf<B>>): Promise<Contract[K]['answer']>
}

export function route<K extends RouteKey, const Q extends Fields = NoFields, const B extends Fields = NoFields>(
  key: K,
  options: RouteOptions<K, Q, B>,
): Route {
  const [method, path] = key.split(' ') as [Method, string]
  const { role, summary, query = {}, body, status = 200, cli, isOfStore = false, audit } = options
  const call = options.call as unknown as Route['call']
  return { key, method, path, role, summary, query, body, status, cli, isOfStore, audit, call }
}

/** Parameters of every list. */
export const pageFields: PageFields = {
  after: { kind: 'text', summary: 'The `next` of the page before' },
  limit: { kind: 'whole', min: 1, max: 500, summary: 'The most items of one page' },
}

type PageFields = {
  readonly after: { readonly kind: 'text'; readonly summary: string }
  readonly limit: { readonly kind: 'whole'; readonly min: number; readonly max: number; readonly summary: string }
}

/** The values of the text in an address. */
export function parseQuery(key: string, fields: Fields, given: URLSearchParams): Record<string, unknown> {
  const values: Record<string, unknown> = {}
  refuseUnknownOptions(key, Object.fromEntries(given), Object.keys(fields))
  for (const [name, field] of Object.entries(fields)) {
    const text = given.get(name)
    if (text !== null && text !== '') values[name] = checkField(name, field, parseText(name, field, text))
    else if (field.required) throw missing(name)
  }
  return values
}

/** The values of a body. Fields that are null count as absent, except those of kind 'json'. */
export function parseBody(key: string, fields: Fields, given: unknown): Record<string, unknown> {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new InvalidOption({ option: 'body', reason: 'The body must be a JSON object.' })
  refuseUnknownOptions(key, given, Object.keys(fields))
  const values: Record<string, unknown> = {}
  for (const [name, field] of Object.entries(fields)) {
    const value = (given as Record<string, unknown>)[name]
    const isAbsent = value === undefined || (value === null && field.kind !== 'json')
    if (!isAbsent) values[name] = checkField(name, field, field.kind === 'time' ? parseText(name, field, value) : value)
    else if (field.required) throw missing(name)
  }
  return values
}

function parseText(name: string, { kind }: Field, text: unknown): unknown {
  if (kind === 'whole') return /^-?\d{1,16}$/.test(String(text)) ? Number(text) : text
  if (kind === 'flag') return text === '1' || text === 'true' ? true : text === '0' || text === 'false' ? false : text
  if (kind === 'list') return String(text).split(',')
  if (kind !== 'time') return text
  const time = new Date(String(text))
  if (Number.isNaN(time.getTime()))
    throw new InvalidOption({ option: name, reason: `The parameter "${name}" must be a time as in ISO 8601.` })
  return time
}

const checks: Readonly<Record<Field['kind'], readonly [(value: unknown) => boolean, string]>> = {
  text: [value => typeof value === 'string', 'text'],
  whole: [value => Number.isSafeInteger(value), 'a whole number'],
  flag: [value => typeof value === 'boolean', 'true or false'],
  time: [value => value instanceof Date, 'a time'],
  list: [value => Array.isArray(value) && value.every(each => typeof each === 'string'), 'a list of texts'],
  json: [() => true, 'a value'],
}

function checkField(name: string, { kind, choices, min, max }: Field, value: unknown): unknown {
  const [isRight, what] = checks[kind]
  const refuse = (expected: string): never => {
    throw new InvalidOption({ option: name, reason: `The parameter "${name}" must be ${expected}.` })
  }
  if (!isRight(value)) return refuse(what)
  const values = kind === 'list' ? (value as string[]) : [value]
  if (choices !== undefined && !values.every(each => choices.includes(each as string)))
    return refuse(`one of ${choices.join(', ')}`)
  if (
    kind === 'whole' &&
    ((min !== undefined && (value as number) < min) || (max !== undefined && (value as number) > max))
  )
    return refuse(`a whole number from ${min ?? 0}${max === undefined ? '' : ` to ${max}`}`)
  return value
}

function missing(name: string): Error {
  return new InvalidOption({ option: name, reason: `The parameter "${name}" is missing.` })
}

/** A call that destroys data needs the name again, so that one click is not enough. */
export function repeatedName(name: string, given: string): void {
  if (given !== name)
    throw new InvalidOption({
      option: 'confirm',
      reason: `The parameter "confirm" must be "${name}": this cannot be undone.`,
    })
}
