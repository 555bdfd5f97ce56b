/** Streams without a database: lists, a few flags, and the order of the checks. */
import type { Expected } from '../../src/events/append/prepare.ts'

/** An event to be appended; `id` is one of a few that are used repeatedly. */
export interface Given {
  readonly total: number
  readonly id: number | undefined
}

export interface Part {
  readonly stream: string
  readonly events: readonly Given[]
  readonly expected: Expected
}

export interface How {
  readonly key?: string | undefined
  readonly onRepeat: 'return' | 'error'
  readonly allowArchived: boolean
  /** The ids that the store made or accepted, if it stored events. */
  readonly ids?: readonly string[] | undefined
}

export interface Refused {
  readonly code: string
  readonly stream?: unknown
  readonly actual?: number
}

export interface Stored {
  readonly stream: string
  readonly version: number
  readonly repeated: boolean
  readonly eventIds?: readonly string[]
}

interface Event {
  readonly stream: string
  readonly version: number
  readonly total: number | undefined
  readonly own: number | undefined
  readonly id: string
}

interface Stream {
  readonly events: Event[]
  state: 'open' | 'archived' | 'tombstoned'
}

export class StreamModel {
  /** All appends so far, to be repeated. */
  readonly said: unknown[] = []
  readonly #streams = new Map<string, Stream>()
  readonly #log: Event[] = []
  readonly #keys = new Map<string, { content: string; results: Stored[] }>()
  readonly #aliases = new Map<string, string>()

  append(parts: readonly Part[], how: How): Refused | Stored[] {
    const content = JSON.stringify(parts.map(({ stream, events }) => [stream, events.map(({ total }) => total)]))
    const own = parts.flatMap(part => part.events.flatMap(({ id }) => (id === undefined ? [] : [id])))
    const known = how.key === undefined ? undefined : this.#keys.get(how.key)
    if (known !== undefined) {
      if (known.content !== content) return { code: 'idempotency_mismatch' }
      if (how.onRepeat === 'error') return { code: 'idempotency_conflict' }
      return known.results.map(result => ({ ...result, repeated: true }))
    }
    return this.#storedBefore(parts, how, own, content) ?? this.#refused(parts, how) ?? this.#store(parts, how, content)
  }

  /** Ids that exist already: all of them with the same content is a repeat, anything else a duplicate. */
  #storedBefore(
    parts: readonly Part[],
    how: How,
    own: readonly number[],
    content: string,
  ): Refused | Stored[] | undefined {
    const present = own.filter(id => this.#log.some(event => event.own === id))
    if (present.length === 0) return undefined
    const isRepeat = parts.every(({ stream, events }) =>
      events.every(({ id, total }) =>
        this.#log.some(
          event => id !== undefined && event.own === id && event.stream === stream && event.total === total,
        ),
      ),
    )
    if (!isRepeat) return { code: 'duplicate_event_id' }
    const results = parts.map(({ stream, events }) => {
      const found = this.#log.filter(event => events.some(({ id }) => id !== undefined && event.own === id))
      const eventIds = found.map(event => event.id)
      return { stream, version: Math.max(...found.map(event => event.version)), repeated: true, eventIds }
    })
    if (how.key !== undefined) this.#keys.set(how.key, { content, results })
    return how.key !== undefined && how.onRepeat === 'error' ? { code: 'idempotency_conflict' } : results
  }

  #refused(parts: readonly Part[], how: How): Refused | undefined {
    for (const { stream, expected } of parts) {
      const { state = 'open', events = [] } = this.#streams.get(stream) ?? {}
      const actual = events.length
      if (state === 'tombstoned') return { code: 'stream_tombstoned' }
      if (state === 'archived' && !how.allowArchived) return { code: 'stream_archived' }
      const wanted = expected === 'empty' ? 0 : expected
      const fits = wanted === 'any' || (wanted === 'exists' ? actual > 0 : actual === wanted)
      if (!fits) return { code: 'version_conflict', actual }
    }
    return undefined
  }

  #store(parts: readonly Part[], how: How, content: string): Stored[] {
    const ids = [...(how.ids ?? [])]
    const results = parts.map(({ stream, events }) => {
      const eventIds = events.map(({ total, id }) => this.#add(stream, total, id, ids.shift() ?? 'not stored'))
      return { stream, version: this.#streams.get(stream)!.events.length, repeated: false, eventIds }
    })
    if (how.key !== undefined) this.#keys.set(how.key, { content, results })
    return results
  }

  #add(stream: string, total: number | undefined, own: number | undefined, id: string): string {
    const known = this.#streams.get(stream) ?? { events: [], state: 'open' }
    const event = { stream, version: known.events.length + 1, total, own, id }
    known.events.push(event)
    this.#log.push(event)
    this.#streams.set(stream, known)
    return id
  }

  read(
    stream: string,
    how: { after: number; direction: 'forwards' | 'backwards'; includeArchived: boolean },
  ): readonly Event[] {
    const { events, state } = this.#streams.get(stream) ?? { events: [], state: 'open' }
    if (state !== 'open' && !how.includeArchived) return []
    const wanted = events.filter(event => event.version > how.after)
    return how.direction === 'forwards' ? wanted : wanted.reverse()
  }

  readAll(includeArchived: boolean): readonly Event[] {
    return this.#log.filter(event => includeArchived || this.#streams.get(event.stream)!.state === 'open')
  }

  /** The code of the error, if it is refused. A tombstone is an event, so its id is taken from the store's result. */
  mark(stream: string, act: 'archive' | 'restore' | 'tombstone', lastId: string | undefined): string | undefined {
    const known = this.#streams.get(stream)
    if (known === undefined) return 'stream_not_found'
    if (known.state === 'tombstoned') return undefined
    if (act === 'tombstone') this.#add(stream, undefined, undefined, lastId ?? 'none')
    known.state = act === 'archive' ? 'archived' : act === 'restore' ? 'open' : 'tombstoned'
    return undefined
  }

  resolve(alias: string, made: string): string {
    if (!this.#aliases.has(alias)) this.#aliases.set(alias, made)
    return this.#aliases.get(alias)!
  }

  describe(stream: string): { version: number; state: string } | undefined {
    const known = this.#streams.get(stream)
    return known && { version: known.events.length, state: known.state }
  }
}
