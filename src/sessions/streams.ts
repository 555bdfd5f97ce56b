/** The events that a session has staged, by stream. Each keeps its id from one try of the save to the next. */
import { InvalidOption } from '../core/errors.ts'
import type { Ids } from '../core/id.ts'
import { checkExpected, type Expected, expectedVersion, type StreamEvents } from '../events/append/prepare.ts'
import type { NewEventOf } from '../events/definition.ts'

type AnyEvent = NewEventOf<string, unknown>

export class StagedStreams {
  readonly #ids: Ids
  readonly #staged = new Map<string, { expected: Expected; readonly events: AnyEvent[] }>()
  readonly #eventIds = new Map<string, string[]>()

  constructor(ids: Ids) {
    this.#ids = ids
  }

  get size(): number {
    let size = 0
    for (const { events } of this.#staged.values()) size += events.length
    return size
  }

  append(stream: string, events: readonly AnyEvent[], expected: Expected | undefined): void {
    if (expected !== undefined) checkExpected(expected)
    if (events.length === 0) return
    const before = this.#staged.get(stream)
    if (before === undefined) {
      this.#staged.set(stream, { expected: expected ?? 'any', events: [...events] })
      return
    }
    refuseOther(stream, before, expected)
    before.events.push(...events)
  }

  /** The events staged here, and those of aggregates, which fold the events that they stage. */
  all(folded: readonly { stream: string; events: readonly AnyEvent[]; expected: number }[]): {
    readonly all: StreamEvents[]
    /** Whether an id was given from outside, which may be stored already. */
    readonly hasOwnIds: boolean
  } {
    let hasOwnIds = false
    const staged = [...this.#staged].map(([stream, each]) => ({ stream, ...each }))
    const all = [...staged, ...folded].map(({ stream, events, expected }): StreamEvents => {
      const ids = this.#eventIds.get(stream) ?? []
      while (ids.length < events.length) ids.push(this.#ids.next())
      this.#eventIds.set(stream, ids)
      const withIds = events.map((event, at) => {
        hasOwnIds ||= event?.id !== undefined
        return event?.id === undefined ? { ...event, id: ids[at]! } : event
      })
      return { stream, expected, events: withIds }
    })
    return { all, hasOwnIds }
  }

  has(stream: string): boolean {
    return this.#staged.has(stream)
  }

  clear(): void {
    this.#staged.clear()
    this.#eventIds.clear()
  }
}

/** A stream has one expected version; events that are staged later must agree with it. */
function refuseOther(
  stream: string,
  { expected, events }: { expected: Expected; events: readonly unknown[] },
  later: Expected | undefined,
): void {
  if (later === undefined || later === 'any' || later === expected) return
  const first = expectedVersion(expected)
  if (first !== null && later === first + events.length) return
  const reason = `The option "expected" was ${expected} when events of stream "${stream}" were staged first, and is ${later} now. Give it once.`
  throw new InvalidOption({ option: 'expected', reason })
}
