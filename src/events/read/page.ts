/**
 * One page of the log for a consumer: the events that pass a filter, how far the log was searched, and which events could not
 * be given the shape their readers expect. Those come as they are stored, each with its error: one bad event must not hide
 * the good ones around it.
 */
import { canonicalJson } from '../../core/json.ts'
import { category } from '../../core/name.ts'
import type { Executor } from '../../database/database.ts'
import type { RecordedEvent } from '../definition.ts'
import type { Log } from '../log.ts'
import { type CopiedPage, copyPage, eventsOfCopied, isWorthCopying } from './copy-page.ts'
import { type EventFilter, filteredRows } from './log.ts'
import { rereadable } from './read.ts'
import { eventsOfRows, rawEventOfRow } from './rows.ts'

export interface PageRequest {
  readonly filter: EventFilter
  readonly after: number
  /** Known to be settled. */
  readonly to: number
  readonly limit: number
}

export interface Page {
  /** In the order of their positions. */
  readonly events: readonly RecordedEvent[]
  /** The log was searched up to here. */
  readonly reached: number
  /** By position: why an event could not be given its shape. */
  readonly faults: ReadonlyMap<number, unknown>
}

/** Archived streams are read too: a follower that falls behind must not miss events that were archived meanwhile. */
export async function readPage(log: Log, request: PageRequest, executor: Executor = log.database): Promise<Page> {
  if (executor === log.database && isCopied(request)) return pageOfCopied(log, request, await fetchPage(log, request))
  const { filter, after, to, limit } = request
  const { rows, reached } = await rereadable(executor, log, () =>
    filteredRows(log, executor, { ...filter, includeArchived: true }, after, to, limit),
  )
  const { events, faults } = await shaped(log, rows)
  return { events: wanted(request, events, faults), reached, faults }
}

/** Whether the page is fetched as raw COPY bytes, so that it can be prefetched before decoding. */
export function isCopied({ filter, after, to, limit }: PageRequest): boolean {
  return isWorthCopying(filter, after, to, limit)
}

export function fetchPage(log: Log, { filter, after, to, limit }: PageRequest): Promise<CopiedPage> {
  return rereadable(log.database, log, () => copyPage(log, filter, after, to, limit))
}

export async function pageOfCopied(log: Log, request: PageRequest, copied: CopiedPage): Promise<Page> {
  const events = await eventsOfCopied(log, copied)
  if (events !== undefined)
    return { events: wanted(request, events, noFaults), reached: copied.reached, faults: noFaults }
  const { filter, after, limit } = request
  const { rows } = await rereadable(log.database, log, () =>
    filteredRows(log, log.database, { ...filter, includeArchived: true }, after, copied.reached, limit),
  )
  const { events: shapedEvents, faults } = await shaped(log, rows)
  return { events: wanted(request, shapedEvents, faults), reached: copied.reached, faults }
}

/** An upcaster may have made another type of it. */
function wanted(
  { filter }: PageRequest,
  events: readonly RecordedEvent[],
  faults: Page['faults'],
): readonly RecordedEvent[] {
  if (filter.types === undefined) return events
  const types = new Set<string>(filter.types)
  return events.filter(event => types.has(event.type) || faults.has(event.position))
}

const noFaults: ReadonlyMap<number, unknown> = new Map()

async function shaped(log: Log, rows: readonly unknown[][]): Promise<Pick<Page, 'events' | 'faults'>> {
  try {
    return { events: await eventsOfRows(log, rows), faults: noFaults }
  } catch {
    const faults = new Map<number, unknown>()
    const events: RecordedEvent[] = []
    for (const row of rows) {
      const raw = rawEventOfRow(row)
      try {
        events.push((await eventsOfRows(log, [row]))[0]!)
      } catch (error) {
        faults.set(raw.position, error)
        events.push(raw)
      }
    }
    return { events, faults }
  }
}

/** Whether an event fits, as the database would have found it. */
export function matches(event: RecordedEvent, filter: EventFilter): boolean {
  const { types, streams, categories, correlationId, headers } = filter
  if (types !== undefined && !types.includes(event.type)) return false
  if (streams !== undefined && !streams.includes(event.stream)) return false
  if (correlationId !== undefined && event.correlationId !== correlationId) return false
  if (categories !== undefined && !categories.includes(category(event.stream) ?? '')) return false
  return headers === undefined || contains(event.headers, headers)
}

/** The same as jsonb's `@>`: objects part by part, arrays element by element, anything else by value. */
export function contains(whole: unknown, part: unknown): boolean {
  if (Array.isArray(part))
    return Array.isArray(whole) && part.every(each => whole.some(element => contains(element, each)))
  if (typeof part === 'object' && part !== null) {
    if (typeof whole !== 'object' || whole === null || Array.isArray(whole)) return false
    return Object.entries(part).every(
      ([key, value]) =>
        value === undefined || (Object.hasOwn(whole, key) && contains((whole as Record<string, unknown>)[key], value)),
    )
  }
  return canonicalJson(whole) === canonicalJson(part)
}
