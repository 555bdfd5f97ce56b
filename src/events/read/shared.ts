/**
 * Reads near the end of the log, shared. There many followers want the same events at the same moment: one read, without a
 * filter, serves all of them, and each takes the events that it wants. Consumers and tails of a store share them. Events
 * that this process has appended itself are not read at all.
 */
import type { RecordedEvent } from '../definition.ts'
import type { Log } from '../log.ts'
import type { RecentEvents } from '../order/recent.ts'
import type { EventFilter } from './log.ts'
import { matches, type Page, pageOfRows, readPage } from './page.ts'

export interface SharedReads {
  /**
   * The wanted events after `after`, at most `limit`. `to` is known to be settled, and near: at most `maxShared` further.
   * `epoch`: that of the server, if the caller knows it; a read from before a restart does not count after it.
   */
  page(filter: EventFilter, after: number, to: number, limit: number, epoch?: number): Promise<Page>
  /** The answer to a question that many followers have at the same moment: asked once. */
  once<T>(question: string, ask: () => Promise<T>): Promise<T>
  /** Drops cached reads: their events may no longer be in the log. */
  forget(): void
}

interface SharedRead {
  readonly after: number
  readonly to: number
  readonly epoch: number | undefined
  readonly page: Promise<Page>
  /** Less than `to` once it is known that its bytes ended it earlier. */
  reached: number
}

/** A read is shared if it begins at most this many positions before the end. */
export const maxShared = 500
/** The number of cached reads: followers in one process are seldom further apart. */
const keptReads = 4

export function openSharedReads(log: Log, recent: RecentEvents): SharedReads {
  let kept: SharedRead[] = []

  let answers: { readonly question: string; readonly answer: Promise<unknown> }[] = []

  const share = (after: number, to: number, epoch: number | undefined): SharedRead => {
    const covers = (read: SharedRead): boolean =>
      read.epoch === epoch && read.after <= after && after < read.reached && read.to >= to
    const known = kept.find(covers)
    if (known !== undefined) return known
    const page = pageOf(after, to)
    const read: SharedRead = { after, to, epoch, page, reached: to }
    kept = [...kept, read].slice(-keptReads)
    page.then(
      ({ reached }) => {
        read.reached = reached
      },
      () => {
        kept = kept.filter(each => each !== read)
      },
    )
    return read
  }

  const pageOf = (after: number, to: number): Promise<Page> => {
    const own = recent.between(after, to)
    if (own === undefined) return readPage(log, { filter: {}, after, to, limit: maxShared })
    const bytes = own.reduce((sum, each) => sum + each.bytes, 0)
    return pageOfRows(
      log,
      own.map(({ row }) => row),
      to,
      bytes,
    )
  }

  return {
    async page(filter, after, to, limit, epoch) {
      const known = await share(after, to, epoch).page
      // One that was on its way may have ended before this place; the next begins there, and so does not.
      const page = known.reached > after ? known : await share(after, to, epoch).page
      return cut(page, filter, after, limit)
    },
    async once<T>(question: string, ask: () => Promise<T>) {
      const known = answers.find(each => each.question === question)
      if (known !== undefined) return known.answer as Promise<T>
      const asked = { question, answer: ask() }
      answers = [...answers, asked].slice(-keptReads)
      asked.answer.catch(() => {
        answers = answers.filter(each => each !== asked)
      })
      return asked.answer
    },
    forget() {
      kept = []
      recent.forget()
    },
  }
}

/** The part of a shared page that one follower wants. */
function cut(page: Page, filter: EventFilter, after: number, limit: number): Page {
  const fits = (event: RecordedEvent): boolean =>
    event.position > after &&
    (matches(event, filter) || (page.faults.has(event.position) && fitsAsStored(event, filter)))
  const events = page.events.filter(fits)
  if (events.length <= limit) return { ...page, events }
  return { ...page, events: events.slice(0, limit), reached: events[limit - 1]!.position }
}

/** An event that could not be decoded has its stored type, which may differ from the type that readers know. */
function fitsAsStored(event: RecordedEvent, filter: EventFilter): boolean {
  return matches(event, { ...filter, types: undefined })
}
