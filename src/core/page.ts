/**
 * A page of a list. Every list of the store has this shape: `next` is opaque text that goes back as `after`, and is
 * undefined on the last page.
 *
 *     let page = await store.streams.list({ limit: 100 })
 *     while (page.next !== undefined) page = await store.streams.list({ limit: 100, after: page.next })
 */
import { InvalidOption } from './errors.ts'
import { checkWhole, optionNames, refuseUnknownOptions } from './options.ts'

/**
 * One page of a list.
 *
 * @example
 * ```ts
 * const page: Page<{ stream: string }> = await store.streams.list({ limit: 10 })
 * const isLast = page.next === undefined
 * ```
 */
export interface Page<T> {
  readonly items: readonly T[]
  /** Goes back as `after` for the page that follows; undefined on the last one. */
  readonly next: string | undefined
}

/** A page ends with the item that reaches so many bytes, whatever its limit of items. */
export const maxPageBytes: number = 8 * 1024 * 1024

/**
 * Which page of a list, and how long.
 *
 * @example
 * ```ts
 * const options: PageOptions = { limit: 50 }
 * await store.streams.list(options)
 * ```
 */
export interface PageOptions {
  /** The `next` of the page before. Default: the first page. */
  readonly after?: string | undefined
  /** The most items of one page. */
  readonly limit?: number | undefined
}

/** The names of `PageOptions`, for lists that have further options. */
export const pageOptionNames: readonly string[] = optionNames<PageOptions>({ after: true, limit: true })

/** The page of a list that was read with one row more than its limit: the extra row only says that there is more. */
export function pageOf<T>(rows: readonly T[], limit: number, keyOf: (last: T) => readonly unknown[]): Page<T> {
  const items = rows.slice(0, limit)
  return { items, next: rows.length > limit ? encodeCursor(keyOf(items.at(-1)!)) : undefined }
}

/** A page of a list that is in memory as a whole, in the order of its keys. Only for lists that are short. */
export function pageOfAll<T>(
  call: string,
  all: readonly T[],
  options: PageOptions,
  keyOf: (item: T) => string,
): Page<T> {
  refuseUnknownOptions(call, options, pageOptionNames)
  const { after, limit = 100 } = options
  checkWhole('limit', limit, 1, 10_000)
  const [last] = after === undefined ? [undefined] : (decodeCursor(after, 1) as [string])
  const rest = last === undefined ? [...all] : all.filter(item => keyOf(item) > last)
  rest.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
  return pageOf(rest, limit, item => [keyOf(item)])
}

/** All items of a list, page by page. */
export async function everyItem<T>(list: (page: PageOptions) => Promise<Page<T>>): Promise<T[]> {
  const items: T[] = []
  let after: string | undefined
  do {
    const page = await list({ after, limit: 1000 })
    items.push(...page.items)
    after = page.next
  } while (after !== undefined)
  return items
}

/** The place of the last row in the order of its list, as text. */
export function encodeCursor(key: readonly unknown[]): string {
  return Buffer.from(JSON.stringify(key)).toString('base64url')
}

/** The values that `encodeCursor` was given; a text that is not one of ours is refused. */
export function decodeCursor(after: string, length: number): unknown[] {
  try {
    const key: unknown = JSON.parse(Buffer.from(after, 'base64url').toString())
    if (Array.isArray(key) && key.length === length) return key
  } catch {}
  throw new InvalidOption({
    option: 'after',
    reason: 'The option "after" must be the "next" of an earlier page of the same list.',
  })
}

/**
 * How many rows a search looks at for one page: few if every row fits, else 10 000. A page of rare ones is short then, and
 * its `next` continues behind the last row that was looked at. One of three numbers, because it is part of a statement.
 */
export function rowsToLookAt(isFiltered: boolean, limit: number): 101 | 501 | 10_001 {
  return isFiltered || limit > 500 ? 10_001 : limit > 100 ? 501 : 101
}
