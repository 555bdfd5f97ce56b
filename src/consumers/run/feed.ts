/**
 * Pages of the log for consumers. Near the end of the log one read serves all of them (`events/read/shared.ts`). A
 * consumer that is far behind reads alone, filtered by the database.
 */

import { nextTurn } from '../../core/host.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import {
  type CopiedPage,
  fetchPage,
  isCopied,
  type Page,
  type PageRequest,
  pageOfCopied,
  readPage,
} from '../../events/read/page.ts'
import { maxShared, type SharedReads } from '../../events/read/shared.ts'
import type { ConsumerFilter } from '../consumer.ts'

export interface Feed {
  /** The wanted events after `after`, at most `limit`; `to` is known to be settled. */
  page(filter: ConsumerFilter, after: number, to: number, limit: number): Promise<Page>
  /** Pages one after the other for one consumer. */
  reader(filter: ConsumerFilter): PageReader
  /** Drops cached reads: their events may no longer be in the log. */
  forget(): void
}

export interface PageReader {
  /** As `page`; the next page is requested before this one is returned. */
  next(after: number, to: number, limit: number): Promise<Page>
  /** Drops the pages that were requested ahead. */
  forget(): void
}

export function openFeed(log: Log, shared: SharedReads): Feed {
  const page: Feed['page'] = async (filter, after, to, limit) => {
    const { where, ...rest } = filter
    const whole =
      to - after <= maxShared
        ? await shared.page(rest, after, to, limit)
        : await readPage(log, { filter: rest, after, to, limit })
    return where === undefined ? whole : chosen(whole, where)
  }

  return {
    page,
    reader: filter => openReader(log, filter, page),
    forget: shared.forget,
  }
}

/**
 * Three steps overlap: while the consumer applies a page, the next one is decoded, and the bytes of the one after that
 * arrive. So at most three pages are in memory. Embedded, or with one connection, the steps could only take turns.
 */
function openReader(log: Log, filter: ConsumerFilter, readShared: Feed['page']): PageReader {
  const { engine, maxConnections } = log.database
  const isAhead = engine !== 'pglite' && maxConnections !== 1
  const { where, ...rest } = filter
  let coming: { readonly request: PageRequest; readonly bytes: Promise<CopiedPage> } | undefined
  let next: { readonly after: number; readonly page: Promise<Page> } | undefined
  // A read that was begun before the reader moved must not be stored.
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
      // If the reader stops here, no one awaits it.
      coming.bytes.catch(() => {})
      // Decoding keeps the thread busy: the request for the next page is sent first.
      await nextTurn()
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
        // If this page fails, no one awaits that one.
        next.page.catch(() => {})
      }
      return page
    },
    forget,
  }
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
