/**
 * Pages of the log for consumers. Near the end of the log many want the same events at the same moment: one read, without
 * a filter, serves all of them, and each takes what it wants of it. Who is far behind reads by itself, filtered by the
 * database.
 */
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { matches, type Page, readPage } from '../events/read-page.ts'
import type { ConsumerFilter } from './consumer.ts'

export interface Feed {
  /** What fits of the events after `after`, at most `limit`; `to` is known to be settled. */
  page(filter: ConsumerFilter, after: bigint, to: bigint, limit: number): Promise<Page>
  /** What is kept may not be in the log any more. */
  forget(): void
}

interface SharedRead {
  readonly after: bigint
  readonly to: bigint
  readonly page: Promise<Page>
}

/** So many positions before the end a read is worth sharing. */
const nearEnd = 500n
/** Reads that are kept: consumers of one daemon are seldom further apart. */
const keptReads = 4

export function openFeed(log: Log): Feed {
  let kept: SharedRead[] = []

  const share = (after: bigint, to: bigint): SharedRead => {
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

  return {
    async page(filter, after, to, limit) {
      const { where, ...rest } = filter
      const page =
        to - after <= nearEnd
          ? cut(await share(after, to).page, rest, after, limit)
          : await readPage(log, { filter: rest, after, to, limit })
      return where === undefined ? page : chosen(page, where)
    },
    forget() {
      kept = []
    },
  }
}

/** The part of a shared page that one consumer wants. */
function cut(page: Page, filter: ConsumerFilter, after: bigint, limit: number): Page {
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
