/**
 * Pages of the log for consumers. Near the end of the log many want the same events at the same moment: one read, without
 * a filter, serves all of them, and each takes what it wants of it. Who is far behind reads by itself, filtered by the
 * database.
 */

import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { CopiedPage } from '../../events/read/copy-page.ts'
import {
  fetchPage,
  isCopied,
  matches,
  type Page,
  type PageRequest,
  pageOfCopied,
  readPage,
} from '../../events/read/page.ts'
import type { ConsumerFilter } from '../consumer.ts'

export interface Feed {
  /** What fits of the events after `after`, at most `limit`; `to` is known to be settled. */
  page(filter: ConsumerFilter, after: number, to: number, limit: number): Promise<Page>
  /** Pages one after the other for one consumer. */
  reader(filter: ConsumerFilter): PageReader
  /** What is kept may not be in the log any more. */
  forget(): void
}

export interface PageReader {
  /** As `page`; what comes next is on its way when this one is handed over. */
  next(after: number, to: number, limit: number): Promise<Page>
  /** What is on its way is not wanted any more. */
  forget(): void
}

interface SharedRead {
  readonly after: number
  readonly to: number
  readonly page: Promise<Page>
}

/** So many positions before the end a read is worth sharing. */
const nearEnd = 500
/** Reads that are kept: consumers of one daemon are seldom further apart. */
const keptReads = 4

export function openFeed(log: Log): Feed {
  let kept: SharedRead[] = []

  const share = (after: number, to: number): SharedRead => {
    const covers = (read: SharedRead): boolean => read.after <= after && after < read.to && read.to >= to
    const known = kept.find(covers)
    if (known !== undefined) return known
    const limit = Number(nearEnd)
    const read: SharedRead = { after, to, page: readPage(log, { filter: {}, after, to, limit }) }
    kept = [...kept, read].slice(-keptReads)
    read.page.catch(() => {
      kept = kept.filter(each => each !== read)
    })
    return read
  }

  const page: Feed['page'] = async (filter, after, to, limit) => {
    const { where, ...rest } = filter
    const whole =
      to - after <= nearEnd
        ? cut(await share(after, to).page, rest, after, limit)
        : await readPage(log, { filter: rest, after, to, limit })
    return where === undefined ? whole : chosen(whole, where)
  }

  return {
    page,
    reader: filter => openReader(log, filter, page),
    forget() {
      kept = []
    },
  }
}

/**
 * Three things at once: while the consumer applies a page, the next is made events of, and the bytes of the one after that
 * come in. So there are three pages in memory at most. Embedded, or with one connection, they would only take turns.
 */
function openReader(log: Log, filter: ConsumerFilter, readShared: Feed['page']): PageReader {
  const { engine, maxConnections } = log.database
  const isAhead = engine !== 'pglite' && maxConnections !== 1
  const { where, ...rest } = filter
  let coming: { readonly request: PageRequest; readonly bytes: Promise<CopiedPage> } | undefined
  let next: { readonly after: number; readonly page: Promise<Page> } | undefined
  // What was begun before somebody went elsewhere must not leave anything behind.
  let course = 0
  const forget = (): void => {
    course++
    coming = undefined
    next = undefined
  }

  const load = async (after: number, to: number, limit: number): Promise<Page> => {
    const ours = course
    const request: PageRequest = { filter: rest, after, to, limit }
    const known = coming
    coming = undefined
    if (!isCopied(request)) return readShared(filter, after, to, limit)
    const isKnown = known !== undefined && known.request.after === after && known.request.limit <= limit
    const asked = isKnown ? known : { request, bytes: fetchPage(log, request) }
    const copied = await asked.bytes
    const following: PageRequest = { ...request, after: copied.reached }
    if (isAhead && ours === course && isCopied(following)) {
      coming = { request: following, bytes: fetchPage(log, following) }
      // If nobody reads on, nobody will look at it.
      coming.bytes.catch(() => {})
      // Taking this one apart keeps the thread: let the question out first.
      await new Promise(setImmediate)
    }
    const page = await pageOfCopied(log, asked.request, copied)
    return where === undefined ? page : chosen(page, where)
  }

  return {
    async next(after, to, limit) {
      if (next !== undefined && next.after !== after) forget()
      const known = next?.page
      next = undefined
      const page = await (known ?? load(after, to, limit))
      if (isAhead && page.events.length > 0 && page.reached < to) {
        next = { after: page.reached, page: load(page.reached, to, limit) }
        // If this page fails nobody will look at that one.
        next.page.catch(() => {})
      }
      return page
    },
    forget,
  }
}

/** The part of a shared page that one consumer wants. */
function cut(page: Page, filter: ConsumerFilter, after: number, limit: number): Page {
  const fits = (event: RecordedEvent): boolean =>
    event.position > after &&
    (matches(event, filter) || (page.faults.has(event.position) && fitsAsStored(event, filter)))
  const events = page.events.filter(fits)
  if (events.length <= limit) return { ...page, events }
  return { ...page, events: events.slice(0, limit), reached: events[limit - 1]!.position }
}

/** An event that could not be given its shape has the type it was stored with, which may not be the one readers know. */
function fitsAsStored(event: RecordedEvent, filter: ConsumerFilter): boolean {
  return matches(event, { ...filter, types: undefined })
}

function chosen(page: Page, where: (event: RecordedEvent) => boolean): Page {
  const faults = new Map(page.faults)
  const events = page.events.filter(event => {
    if (faults.has(event.position)) return true
    try {
      return where(event)
    } catch (error) {
      faults.set(event.position, error)
      return true
    }
  })
  return { ...page, events, faults }
}
