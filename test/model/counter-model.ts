/**
 * The ordering protocol with a counter: writers draw from a row that stays locked until their commit; readers read the
 * counter, and then the events up to it.
 *
 * Promise: an event at or below the position that a reader has passed was delivered to it, or will never be visible; no two
 * events have one position.
 *
 * Variables   counter: the committed value of the row, and the writer that has it locked · visible: the positions that are
 *             committed · of each writer: the value it has written, its positions, its savepoint · of the reader: as in
 *             `ordering-model.ts`.
 * Actions     one for each statement that another transaction can notice.
 * Bounds      how many writers, how many appends each makes in its transaction, and whether it may set a savepoint.
 *
 * A set of positions is a number: bit n stands for position n.
 */
import type { Action, Model } from './checker.ts'
import { compareData } from './plain-state.ts'

export interface CounterBounds {
  readonly writers: readonly { readonly appends: number; readonly savepoints: number }[]
}

/** Close relatives of the protocol, each of which loses events, or gives one position twice. */
export const counterMutants = [
  'drawn in a transaction of its own',
  'events are read before the counter',
  'the row is unlocked before the commit',
  'the counter and the events are committed one after the other',
  'readers count what is drawn and not committed',
  'the row is not locked',
  'a rollback to a savepoint unlocks what was drawn before it',
] as const
export type CounterMutant = (typeof counterMutants)[number]

interface Writer {
  at: 'idle' | 'half committed' | 'ended'
  /** What it has written to the row; null if it has not drawn. */
  value: number | null
  positions: number
  appends: number
  savepoints: number
  savepoint: { value: number | null; positions: number } | null
}

export interface CounterState {
  counter: number
  visible: number
  writers: Writer[]
  reader: { at: 'idle' | 'first'; counter: number; snapshot: number; passed: number; delivered: number }
}

export function counterModel({ writers }: CounterBounds, mutant?: CounterMutant): Model<CounterState> {
  return {
    initial: {
      counter: 0,
      visible: 0,
      writers: writers.map(program => ({ ...newWriter, ...program })),
      reader: { ...newReader },
    },
    actions: [...writers.flatMap((_, at) => writerActions(at, mutant)), ...readerActions(mutant)],
    invariant({ visible, writers: all, reader }) {
      let taken = visible
      for (const { at, positions } of all) {
        if ((taken & positions) !== 0) return `two events have position ${lowest(taken & positions)}`
        if (at !== 'ended') taken |= positions
      }
      const missed = visible & ~reader.delivered & upTo(reader.passed)
      return missed === 0 ? undefined : `the reader has passed position ${lowest(missed)}, and never got its event`
    },
    isDone: ({ counter, writers: all, reader }) =>
      all.every(({ at }) => at === 'ended') && reader.at === 'idle' && reader.passed === counter,
    canonical(state) {
      state.writers.sort(compareData)
      return state
    },
  }
}

const newWriter = { at: 'idle', value: null, positions: 0, savepoint: null } as const
const newReader = { at: 'idle', counter: 0, snapshot: 0, passed: 0, delivered: 0 } as const
const ended = { ...newWriter, appends: 0, savepoints: 0, at: 'ended' } as const

function writerActions(number: number, mutant: CounterMutant | undefined): Action<CounterState>[] {
  const name = `writer ${number + 1}`
  const own = ({ writers }: CounterState): Writer => writers[number]!
  const isLockedByOther = ({ writers }: CounterState): boolean =>
    mutant !== 'the row is not locked' && writers.some((other, at) => at !== number && other.value !== null)
  const drawsApart = mutant === 'drawn in a transaction of its own'
  const unlocks = mutant === 'the row is unlocked before the commit'
  const commitsTwice = mutant === 'the counter and the events are committed one after the other'
  return [
    {
      name: `${name} draws a position and inserts its event`,
      can: state => own(state).at === 'idle' && own(state).appends > 0 && !isLockedByOther(state),
      run: state => {
        const writer = own(state)
        const drawn = (writer.value ?? state.counter) + 1
        writer.positions |= 1 << drawn
        writer.appends--
        // Visible to all at once, and locked by nobody.
        if (drawsApart || unlocks) state.counter = drawn
        else writer.value = drawn
      },
    },
    {
      name: `${name} sets a savepoint`,
      can: state => own(state).at === 'idle' && own(state).savepoints > 0 && own(state).appends > 0,
      run: state => {
        const writer = own(state)
        writer.savepoint = { value: writer.value, positions: writer.positions }
        writer.savepoints--
      },
    },
    {
      name: `${name} rolls back to its savepoint`,
      can: state => own(state).at === 'idle' && own(state).savepoint !== null,
      run: state => {
        const writer = own(state)
        const isUnlocked = mutant === 'a rollback to a savepoint unlocks what was drawn before it'
        writer.value = isUnlocked ? null : writer.savepoint!.value
        writer.positions = writer.savepoint!.positions
        writer.savepoint = null
      },
    },
    {
      name: `${name} commits: its events and the counter are visible`,
      can: state => own(state).at === 'idle' && own(state).positions > 0,
      run: state => {
        const writer = own(state)
        state.counter = Math.max(state.counter, writer.value ?? 0)
        if (commitsTwice) state.writers[number] = { ...ended, at: 'half committed', positions: writer.positions }
        else {
          state.visible |= writer.positions
          state.writers[number] = { ...ended }
        }
      },
    },
    {
      name: `${name} has committed the counter, and now its events`,
      can: state => own(state).at === 'half committed',
      run: state => {
        state.visible |= own(state).positions
        state.writers[number] = { ...ended }
      },
    },
    {
      name: `${name} rolls back`,
      can: state => own(state).at === 'idle',
      run: state => {
        state.writers[number] = { ...ended }
      },
    },
  ]
}

function readerActions(mutant: CounterMutant | undefined): Action<CounterState>[] {
  const eventsFirst = mutant === 'events are read before the counter'
  const seesDrawn = mutant === 'readers count what is drawn and not committed'
  return [
    {
      name: eventsFirst ? 'the reader reads the events' : 'the reader reads the counter',
      can: ({ reader }) => reader.at === 'idle',
      run: state => {
        const drawn = seesDrawn ? state.writers.map(({ value }) => value ?? 0) : []
        if (eventsFirst) state.reader.snapshot = state.visible
        else state.reader.counter = Math.max(state.counter, ...drawn)
        state.reader.at = 'first'
      },
    },
    {
      name: eventsFirst ? 'the reader reads the counter' : 'the reader reads the events up to there',
      can: ({ reader }) => reader.at === 'first',
      run: state => {
        const { reader, visible, counter } = state
        const passed = Math.max(reader.passed, eventsFirst ? counter : reader.counter)
        const snapshot = eventsFirst ? reader.snapshot : visible
        const delivered = reader.delivered | (snapshot & upTo(passed) & ~upTo(reader.passed))
        state.reader = { ...newReader, passed, delivered }
      },
    },
  ]
}

function upTo(position: number): number {
  return (1 << (position + 1)) - 1
}

function lowest(positions: number): number {
  return Math.log2(positions & -positions)
}
