/**
 * The calls that a handler makes of its context in one run, and the records of earlier runs that answer them.
 *
 * The ends of calls are delivered to a run one at a time, each after everything that the run did because of the one before;
 * so the same ends in the same order lead to the same calls. Both orders are recorded, that of the calls (`ordinal`) and
 * that of the ends (`turn`): a run that is repeated gets the recorded ends in that order, and makes the same calls, or else
 * its code has changed (`NonDeterministic`). That holds for parallel steps, too.
 *
 * A new attempt may leave that track: calls that had failed, or had not ended, are made again, and may end otherwise or at
 * another time. From there on calls are known by kind and name alone, and their orders are a new track.
 *
 * A failure counts for the rest of its attempt, so that a handler that has caught it takes the same way after a wait; the
 * next attempt runs the step again. Nothing here knows the database.
 */

import { type Deferred, deferred } from '../../core/abort.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { RillflowError } from '../../core/errors.ts'
import { inNextTurn } from '../../core/host.ts'
import { NonDeterministic } from '../errors.ts'

export type CallKind = 'step' | 'tx' | 'sleep' | 'wait' | 'start' | 'child'

/** How a call has ended. */
export interface End {
  /** Expired: it waited for an event that did not come in time. */
  readonly state: 'done' | 'failed' | 'expired'
  /** The value for the caller, or the error of a call that failed. */
  readonly value: unknown
  /** The value as it is stored: JSON, or nothing. */
  readonly result?: string | undefined
  /** Of the event that ended a wait. */
  readonly position?: number | undefined
  /** Undefined: the time at which it is delivered. */
  readonly at?: Date | undefined
}

/** The place of a call in a track. */
export interface TrackPlace {
  readonly track: number
  readonly ordinal: number
  readonly turn: number | undefined
}

/** A call as it is stored. */
export interface Recorded extends TrackPlace {
  readonly kind: CallKind
  readonly name: string
  /** Forgotten: it failed in an earlier attempt. */
  readonly state: 'waiting' | 'forgotten' | End['state']
  readonly at: Date
  /** Undefined if it has none yet. */
  readonly end: End | undefined
  /** How much longer it waits, counted from when it was loaded, by the database's clock. */
  readonly dueInMs: number | undefined
}

export interface Call {
  readonly kind: CallKind
  /** Unique among those of its kind: the second `pay` is `pay#2`. */
  readonly name: string
  readonly known: Recorded | undefined
  readonly answer: Deferred<unknown>
  /** Its number among the calls of this run; 0 before it is made. */
  ordinal: number
  /** Its number among the ends that were delivered to this run. */
  turn: number | undefined
  end: End | undefined
  at: Date
  /** Of a step of this run: when its function was called first, and how often it was called. */
  startedAt?: Date | undefined
  calls?: number | undefined
  /** As the database has it. */
  stored: (TrackPlace & { readonly state: Recorded['state'] }) | undefined
}

export interface Replay {
  /** The time of the last end that was delivered, the same in every run. */
  readonly now: Date
  /** How many ends were delivered. */
  readonly turn: number
  readonly track: number
  /** Counts up with everything that happens here. */
  readonly activity: number
  /** Whether all ends that could be delivered were. */
  readonly isQuiet: boolean
  /** Makes a call; a recorded one is answered in its turn. Undefined, after `onPark`, if the call does not fit the record. */
  ask(kind: CallKind, name: string): Call | undefined
  /** A call has ended; its first end counts. */
  ended(call: Call, end: End): void
  /** The time to be recorded for a call that ends now. */
  timeNow(): Date
  /** Calls that were made and not answered yet. */
  undelivered(): Call[]
  /** Calls whose ends were delivered, and that the database has not, or otherwise. */
  unstored(): Call[]
  /** From now on nothing is delivered. */
  close(): void
}

export interface ReplayOptions {
  readonly handler: string
  readonly clock: Clock
  /** When the execution began. */
  readonly beganAt: Date
  readonly recorded: readonly Recorded[]
  readonly onPark: (error: RillflowError) => void
  /** A call was made, has ended or was answered. */
  readonly onActivity: () => void
}

/** How long to wait for a call whose end an earlier run got first, if this run does not make it. */
const stallMs = 1_000

export function openReplay(options: ReplayOptions): Replay {
  const { recorded, clock } = options
  const newest = recorded.reduce((most, { track }) => Math.max(most, track), 1)
  const calls = new Map(recorded.map(each => [keyOf(each.kind, each.name), knownCall(each)]))
  const onTrack = [...calls.values()].filter(({ stored }) => stored!.track === newest)
  const byOrdinal = new Map(onTrack.map(call => [call.stored!.ordinal, call]))
  const track = onTrack
    .filter(({ end, stored }) => end !== undefined && stored!.turn !== undefined)
    .sort((a, b) => a.stored!.turn! - b.stored!.turn!)
  const forgotten = onTrack.flatMap(({ stored }) => (stored!.state === 'forgotten' ? (stored!.turn ?? []) : []))
  const forgottenFrom = Math.min(...forgotten)
  const ready: Call[] = []
  const made = new Map<string, number>()
  const waitsForTurn = new Set(track)
  let trackNumber = newest
  let asked = 0
  let turn = 0
  let now = options.beganAt
  let activity = 0
  let isStrayed = false
  let isScheduled = false
  let isClosed = false
  let stall: Timer | undefined

  return {
    get now() {
      return now
    },
    get turn() {
      return turn
    },
    get track() {
      return trackNumber
    },
    get activity() {
      return activity
    },
    get isQuiet() {
      return !isScheduled && ready.length === 0 && ![...waitsForTurn].some(({ ordinal }) => ordinal > 0)
    },
    ask(kind, given) {
      note()
      const name = numbered(kind, given)
      const call = calls.get(keyOf(kind, name)) ?? newCall(kind, name, undefined)
      const ordinal = asked + 1
      const wrong = isStrayed ? undefined : misplaced(call, ordinal)
      if (wrong !== undefined) {
        isClosed = true
        options.onPark(wrong)
        return undefined
      }
      asked = call.ordinal = ordinal
      calls.set(keyOf(kind, name), call)
      if (call.end !== undefined) {
        if (!waitsForTurn.has(call)) ready.push(call)
        schedule()
      }
      return call
    },
    ended(call, end) {
      if (call.end !== undefined || isClosed) return
      note()
      call.end = end
      ready.push(call)
      schedule()
    },
    timeNow: () => latest(now, clock.now()),
    undelivered: () => [...calls.values()].filter(call => call.ordinal > 0 && call.turn === undefined),
    unstored: () => [...calls.values()].filter(isUnstored),
    close() {
      isClosed = true
      stall?.cancel()
    },
  }

  function note(): void {
    activity++
    options.onActivity()
  }

  function numbered(kind: CallKind, name: string): string {
    for (let number = (made.get(keyOf(kind, name)) ?? 0) + 1; ; number++) {
      const unique = number === 1 ? name : `${name}#${number}`
      made.set(keyOf(kind, name), number)
      // A handler may have named a step "pay#2" itself.
      if ((calls.get(keyOf(kind, unique))?.ordinal ?? 0) === 0) return unique
    }
  }

  function misplaced(call: Call, ordinal: number): RillflowError | undefined {
    const expected = byOrdinal.get(ordinal)
    const stored = byOrdinal.get(call.stored?.ordinal ?? 0) === call ? call.stored : undefined
    if (expected === call || (expected === undefined && stored === undefined)) return undefined
    const { kind, name } = expected ?? call
    const recorded = expected === undefined ? `it as call ${stored!.ordinal}` : `${kind} "${name}"`
    const said = { step: name, recorded, asked: `${call.kind} "${call.name}" as call ${ordinal}` }
    return new NonDeterministic({ handler: options.handler, ...said })
  }

  /** After a turn of the event loop: until then the run reacts to the end before. */
  function schedule(): void {
    if (isScheduled || isClosed) return
    isScheduled = true
    inNextTurn(() => {
      isScheduled = false
      if (isClosed) return
      const next = nextEnd()
      if (next === undefined) return options.onActivity()
      deliver(next)
      schedule()
      note()
    })
  }

  function nextEnd(): Call | undefined {
    const [first] = waitsForTurn
    // The end of this turn is no longer recorded.
    if (!isStrayed && (turn + 1 >= forgottenFrom || (first !== undefined && first.stored!.turn !== turn + 1)))
      leaveTrack()
    if (isStrayed || first === undefined) return ready.shift()
    if (first.ordinal > 0) {
      waitsForTurn.delete(first)
      return first
    }
    if (ready.length > 0 || [...waitsForTurn].some(({ ordinal }) => ordinal > 0))
      stall ??= clock.setTimeout(() => {
        stall = undefined
        if (waitsForTurn.has(first)) leaveTrack()
        schedule()
      }, stallMs)
    return undefined
  }

  /** Calls made so far are answered in the order in which they end; the orders of this run are those of a new track. */
  function leaveTrack(): void {
    isStrayed = true
    trackNumber = newest + 1
    ready.unshift(...[...waitsForTurn].filter(({ ordinal }) => ordinal > 0))
    waitsForTurn.clear()
  }

  function deliver(call: Call): void {
    const { end } = call
    call.turn = ++turn
    // An end that was recorded has its time; one that happened while no attempt ran is delivered now.
    call.at = end!.at ?? latest(now, clock.now())
    now = latest(now, call.at)
    if (end!.state === 'failed') call.answer.reject(end!.value)
    else call.answer.resolve(end!.value)
  }

  function isUnstored(call: Call): boolean {
    const { stored, end } = call
    if (call.turn === undefined) return false
    if (stored === undefined || stored.state !== end!.state) return true
    return stored.turn !== call.turn || stored.ordinal !== call.ordinal || stored.track !== trackNumber
  }
}

function knownCall(known: Recorded): Call {
  const call = newCall(known.kind, known.name, known)
  call.end = known.end
  call.at = known.at
  const { track, ordinal, turn, state } = known
  call.stored = { track, ordinal, turn, state }
  return call
}

function newCall(kind: CallKind, name: string, known: Recorded | undefined): Call {
  const answer = deferred<unknown>()
  // A call that the handler does not await must not end the process when it is rejected.
  answer.promise.catch(() => {})
  return { kind, name, known, answer, ordinal: 0, turn: undefined, end: undefined, at: new Date(0), stored: undefined }
}

function keyOf(kind: CallKind, name: string): string {
  return `${kind} ${name}`
}

function latest(first: Date, ...others: readonly (Date | undefined)[]): Date {
  return others.reduce<Date>((most, each) => (each !== undefined && each > most ? each : most), first)
}
