/**
 * The ordering protocol: writers announce, draw and commit; readers settle in three reads.
 *
 * Promise: an event at or below the position that a reader has passed was delivered to it, or will never be visible.
 *
 * Variables   head: the last number of the sequence · visible: the positions that are committed · of each writer: its
 *             advisory lock, its transaction-local setting, what it has drawn, its savepoint · of the reader: what its reads
 *             gave, the position it has passed, and what was delivered to it.
 * Actions     one for each statement, or part of one, that another transaction can notice.
 * Bounds      those of the caller: how many writers, how many appends each of them makes in its transaction, and whether
 *             it may set a savepoint and roll back to it. The reader reads as often as it likes, and it hears of every
 *             commit. A reader changes nothing that others see, so one stands for any number of readers.
 *
 * A set of positions is a number: bit n stands for position n.
 */
import type { Action, Model } from './checker.ts'
import { compareData } from './plain-state.ts'

export interface OrderingBounds {
  /** One for each writer. */
  readonly writers: readonly { readonly appends: number; readonly savepoints: number }[]
}

/** Close relatives of the protocol, each of which loses events. */
export const orderingMutants = [
  'nothing is announced',
  'announced after drawing',
  'announced in a transaction of its own',
  'locks are read before the head',
  'events are read from a snapshot older than the locks',
  'the client remembers the announcement',
  'the lock is given back before the commit',
  'an unused sequence is read as used',
  'the greatest bound counts',
  'an answered append is taken across a hole',
] as const
export type OrderingMutant = (typeof orderingMutants)[number]

interface Writer {
  /** Has read the bound; has announced, and may draw; is committed, and still has its lock. */
  at: 'idle' | 'bound' | 'announced' | 'drawn' | 'committed' | 'ended'
  bound: number
  lock: number | null
  hasSetting: boolean
  drawn: number
  appends: number
  savepoints: number
  savepoint: { lock: number | null; hasSetting: boolean; drawn: number } | null
}

export interface OrderingState {
  head: number
  visible: number
  writers: Writer[]
  reader: {
    at: 'idle' | 'head' | 'settled'
    head: number
    bound: number
    snapshot: number
    passed: number
    delivered: number
  }
}

export function orderingModel({ writers }: OrderingBounds, mutant?: OrderingMutant): Model<OrderingState> {
  return {
    initial: {
      head: 0,
      visible: 0,
      writers: writers.map(program => ({ ...newWriter, ...program })),
      reader: { ...newReader },
    },
    actions: [...writers.flatMap((_, at) => writerActions(at, mutant)), ...readerActions(mutant)],
    invariant({ visible, reader }) {
      const missed = visible & ~reader.delivered & upTo(reader.passed)
      return missed === 0 ? undefined : `the reader has passed position ${lowest(missed)}, and never got its event`
    },
    isDone: ({ head, writers: all, reader }) =>
      all.every(({ at }) => at === 'ended') && reader.at === 'idle' && reader.passed === head,
    canonical(state) {
      state.writers.sort(compareData)
      return state
    },
  }
}

const newWriter = { at: 'idle', bound: 0, lock: null, hasSetting: false, drawn: 0, savepoint: null } as const
const newReader = { at: 'idle', head: 0, bound: 0, snapshot: 0, passed: 0, delivered: 0 } as const

function writerActions(number: number, mutant: OrderingMutant | undefined): Action<OrderingState>[] {
  const name = `writer ${number + 1}`
  const own = ({ writers }: OrderingState): Writer => writers[number]!
  const isOpen = ({ at }: Writer): boolean => at !== 'committed' && at !== 'ended'
  const isBetweenAppends = ({ at }: Writer): boolean => at === 'idle'
  const drawsFirst = mutant === 'announced after drawing'
  const needsAnnouncement = ({ hasSetting }: Writer): boolean => !hasSetting && mutant !== 'nothing is announced'
  return [
    {
      name: `${name} announces: it reads the sequence`,
      can: state => {
        const writer = own(state)
        if (!needsAnnouncement(writer)) return false
        return drawsFirst ? writer.at === 'drawn' : isBetweenAppends(writer) && writer.appends > 0
      },
      run: state => {
        const writer = own(state)
        writer.bound = mutant === 'an unused sequence is read as used' ? Math.max(1, state.head) : state.head
        writer.at = 'bound'
      },
    },
    {
      name: `${name} announces: it takes the lock that carries the bound`,
      can: state => own(state).at === 'bound',
      run: state => {
        const writer = own(state)
        writer.lock = mutant === 'announced in a transaction of its own' ? null : writer.bound
        writer.bound = 0
        writer.hasSetting = true
        writer.at = drawsFirst ? 'idle' : 'announced'
      },
    },
    {
      name: `${name} draws a position and inserts its event`,
      can: state => {
        const writer = own(state)
        if (writer.at === 'announced') return true
        return isBetweenAppends(writer) && writer.appends > 0 && (drawsFirst || !needsAnnouncement(writer))
      },
      run: state => {
        const writer = own(state)
        state.head++
        writer.drawn |= 1 << state.head
        writer.appends--
        writer.at = drawsFirst && !writer.hasSetting ? 'drawn' : 'idle'
        if (mutant === 'the lock is given back before the commit') writer.lock = null
      },
    },
    {
      name: `${name} sets a savepoint`,
      can: state => isBetweenAppends(own(state)) && own(state).savepoints > 0 && own(state).appends > 0,
      run: state => {
        const writer = own(state)
        const { lock, hasSetting, drawn } = writer
        writer.savepoint = { lock, hasSetting, drawn }
        writer.savepoints--
      },
    },
    {
      name: `${name} rolls back to its savepoint`,
      can: state => isOpen(own(state)) && own(state).savepoint !== null,
      run: state => {
        const writer = own(state)
        const { lock, hasSetting, drawn } = writer.savepoint!
        writer.lock = lock
        if (mutant !== 'the client remembers the announcement') writer.hasSetting = hasSetting
        writer.drawn = drawn
        writer.bound = 0
        writer.savepoint = null
        writer.at = 'idle'
      },
    },
    {
      name: `${name} commits: its events are visible`,
      can: state => isBetweenAppends(own(state)) && own(state).drawn > 0,
      run: state => {
        const writer = own(state)
        state.visible |= writer.drawn
        state.writers[number] = { ...newWriter, appends: 0, savepoints: 0, lock: writer.lock, at: 'committed' }
      },
    },
    {
      name: `${name} is committed, and its lock is released`,
      can: state => own(state).at === 'committed',
      run: state => {
        state.writers[number] = { ...newWriter, appends: 0, savepoints: 0, at: 'ended' }
      },
    },
    {
      name: `${name} rolls back`,
      can: state => isOpen(own(state)),
      run: state => {
        state.writers[number] = { ...newWriter, appends: 0, savepoints: 0, at: 'ended' }
      },
    },
  ]
}

function readerActions(mutant: OrderingMutant | undefined): Action<OrderingState>[] {
  const locksFirst = mutant === 'locks are read before the head'
  const readHead = ({ head, reader }: OrderingState): void => {
    reader.head = head
  }
  const readLocks = ({ writers, reader }: OrderingState): void => {
    const bounds = writers.flatMap(({ lock }) => (lock === null ? [] : [lock]))
    const bound = mutant === 'the greatest bound counts' ? Math.max(...bounds) : Math.min(...bounds)
    // A bound above every head says the same as none.
    reader.bound = bounds.length === 0 ? noBound : bound
  }
  return [
    {
      name: locksFirst ? 'the reader reads the locks' : 'the reader reads the head of the sequence',
      can: ({ reader }) => reader.at === 'idle',
      run: state => {
        if (locksFirst) readLocks(state)
        else readHead(state)
        if (mutant === 'events are read from a snapshot older than the locks') state.reader.snapshot = state.visible
        state.reader.at = 'head'
      },
    },
    {
      name: locksFirst ? 'the reader reads the head of the sequence' : 'the reader reads the locks',
      can: ({ reader }) => reader.at === 'head',
      run: state => {
        const { reader } = state
        if (locksFirst) readHead(state)
        else readLocks(state)
        // What is settled is all that it keeps of the two.
        reader.head = Math.min(reader.head, reader.bound)
        reader.bound = 0
        reader.at = 'settled'
      },
    },
    {
      name: 'the reader reads the events up to there',
      can: ({ reader }) => reader.at === 'settled',
      run: state => {
        const { reader, visible } = state
        const snapshot = mutant === 'events are read from a snapshot older than the locks' ? reader.snapshot : visible
        const passed = Math.max(reader.passed, reader.head)
        const delivered = reader.delivered | (snapshot & upTo(passed) & ~upTo(reader.passed))
        state.reader = { ...newReader, passed, delivered }
      },
    },
    ...answered.map(
      (distance): Action<OrderingState> => ({
        name: 'the reader takes the append at the next position, which was answered',
        can: ({ reader, visible }) =>
          reader.at === 'idle' &&
          (distance === 1 || mutant === 'an answered append is taken across a hole') &&
          (visible & (1 << (reader.passed + distance))) !== 0,
        run: ({ reader }) => {
          reader.passed += distance
          reader.delivered |= 1 << reader.passed
        },
      }),
    ),
  ]
}

const noBound = 31
/** How far beyond the place of the reader; only a mutant takes the second one. */
const answered = [1, 2] as const

function upTo(position: number): number {
  return (1 << (position + 1)) - 1
}

function lowest(positions: number): number {
  return Math.log2(positions & -positions)
}
