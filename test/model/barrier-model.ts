/**
 * The barrier of inline projections: a projection becomes inline, and asynchronous again, while events are appended.
 *
 * Promise: each event that is committed is applied once, with its append or by the consumer. While the projection is inline
 * all of them are applied; while it is not, those up to its checkpoint.
 *
 * Variables   isInline, changes: the tables `inline_projections` and `inline_changes` · events: by position, whether each is
 *             visible and how often it is applied · consumer: checkpoint and fence of its row, and the batch of its runner ·
 *             change: the transaction that changes the lifecycle · of each append: how far its transaction is, and what
 *             it has seen.
 * Actions     one for each statement that takes a lock, draws a position or commits.
 * Bounds      those of the caller: the appends, each of one event, in read committed or repeatable read, by a process that
 *             has the code of the projection or lacks it; how often the lifecycle changes.
 */
import type { Action, Model } from './checker.ts'
import { compareData } from './plain-state.ts'

export const barrierMutants = [
  'a change does not take the barrier',
  'an append lets go of its look',
  'the last events are read before the barrier',
  'an old snapshot is believed',
  'an append without the code is let through',
  'the consumer keeps its fence',
  'a projection that is no longer inline begins at its old checkpoint',
] as const
export type BarrierMutant = (typeof barrierMutants)[number]

export interface BarrierBounds {
  readonly appends: readonly Pick<Append, 'isStrict' | 'hasCode'>[]
  readonly changes: number
}

interface Append {
  /** Its transaction is in repeatable read. */
  isStrict: boolean
  /** Its process has the code of the projection. */
  hasCode: boolean
  /** Looked: it holds its look until it ends. Stored: it has drawn its position. */
  at: 'idle' | 'begun' | 'looked' | 'stored' | 'ended'
  /** What its snapshot, or its look, has seen. */
  seesInline: boolean
  seesChanges: number
  position: number
}

export interface BarrierState {
  isInline: boolean
  changes: number
  changesLeft: number
  events: { isVisible: boolean; applied: number }[]
  /** The batch of its runner ends at `to`; 0: none. */
  consumer: { checkpoint: number; fence: number; held: number; from: number; to: number }
  change: { at: 'none' | 'taken' | 'barrier' | 'folded'; to: number; fence: number; from: number }
  appends: Append[]
}

const noChange = { at: 'none', to: 0, fence: 0, from: 0 } as const

export function barrierModel({ appends, changes }: BarrierBounds, mutant?: BarrierMutant): Model<BarrierState> {
  const newAppend = { at: 'idle', seesInline: false, seesChanges: 0, position: 0 } as const
  return {
    initial: {
      isInline: false,
      changes: 0,
      changesLeft: changes,
      events: [],
      consumer: { checkpoint: 0, fence: 1, held: 0, from: 0, to: 0 },
      change: { ...noChange },
      appends: appends.map(({ isStrict, hasCode }) => ({ isStrict, hasCode, ...newAppend })),
    },
    actions: [...appends.flatMap((_, at) => appendActions(at, mutant)), ...changeActions(mutant), ...consumerActions()],
    invariant,
    isDone: ({ appends: all, change, isInline, consumer, events }) =>
      all.every(({ at }) => at === 'ended') &&
      change.at === 'none' &&
      consumer.to === 0 &&
      (isInline || consumer.checkpoint === events.length),
    canonical(state) {
      const { consumer, change } = state
      const known = [...new Set([0, consumer.fence, consumer.held, change.fence])].sort((a, b) => a - b)
      consumer.fence = known.indexOf(consumer.fence)
      consumer.held = known.indexOf(consumer.held)
      change.fence = known.indexOf(change.fence)
      state.appends.sort(compareData)
      return state
    },
  }
}

function invariant({ events, isInline, consumer }: BarrierState): string | undefined {
  for (const [at, { isVisible, applied }] of events.entries()) {
    const isDue = isVisible && (isInline || at < consumer.checkpoint)
    if (applied > 1) return `event ${at + 1} is applied twice`
    if (isDue && applied === 0) return `event ${at + 1} is never applied`
  }
  return undefined
}

function appendActions(number: number, mutant: BarrierMutant | undefined): Action<BarrierState>[] {
  const name = `append ${number + 1}`
  const own = ({ appends }: BarrierState): Append => appends[number]!
  const end = (state: BarrierState): void => {
    const { isStrict, hasCode } = own(state)
    state.appends[number] = { isStrict, hasCode, at: 'ended', seesInline: false, seesChanges: 0, position: 0 }
  }
  return [
    {
      name: `${name} begins a transaction in repeatable read`,
      can: state => own(state).at === 'idle' && own(state).isStrict,
      run: state => {
        Object.assign(own(state), { at: 'begun', seesInline: state.isInline, seesChanges: state.changes })
      },
    },
    {
      name: `${name} looks which projections are inline`,
      can: state => {
        const { at, isStrict } = own(state)
        return at === (isStrict ? 'begun' : 'idle') && !hasBarrier(state, mutant)
      },
      run: state => {
        const append = own(state)
        // A row that has changed since its snapshot: 40001.
        const isOld =
          append.isStrict && append.seesChanges !== state.changes && mutant !== 'an old snapshot is believed'
        if (!append.isStrict) append.seesInline = state.isInline
        const isRefused = append.seesInline && !append.hasCode && mutant !== 'an append without the code is let through'
        append.at = 'looked'
        append.seesChanges = 0
        if (isOld || isRefused) end(state)
      },
    },
    {
      name: `${name} applies its event if it is to, draws its position and inserts it`,
      can: state => own(state).at === 'looked',
      run: state => {
        own(state).position = state.events.push({ isVisible: false, applied: 0 })
        own(state).at = 'stored'
      },
    },
    {
      name: `${name} commits`,
      can: state => own(state).at === 'stored',
      run: state => {
        const { position, seesInline, hasCode } = own(state)
        const event = state.events[position - 1]!
        event.isVisible = true
        if (seesInline && hasCode) event.applied++
        end(state)
      },
    },
    {
      name: `${name} rolls back`,
      can: state => own(state).at === 'stored',
      run: end,
    },
  ]
}

/** Whether the transaction of a change has the table locked against looks. */
function hasBarrier({ change }: BarrierState, mutant: BarrierMutant | undefined): boolean {
  if (mutant === 'a change does not take the barrier') return false
  return change.at === 'barrier' || change.at === 'folded'
}

/** Up to here every event is visible or will never exist. */
function settled({ appends, events }: BarrierState): number {
  const open = appends.flatMap(({ at, position }) => (at === 'stored' ? [position - 1] : []))
  return Math.min(events.length, ...open)
}

function applyEvents({ events }: BarrierState, from: number, to: number): void {
  for (const event of events.slice(from, to)) if (event.isVisible) event.applied++
}

/** As `makeInline` and `makeAsync` do. */
function changeActions(mutant: BarrierMutant | undefined): Action<BarrierState>[] {
  const isLate = mutant === 'the last events are read before the barrier'
  const newFence = ({ consumer, change }: BarrierState): number =>
    mutant === 'the consumer keeps its fence'
      ? consumer.fence
      : Math.max(consumer.fence, consumer.held, change.fence) + 1
  const isLookedAt = ({ appends }: BarrierState): boolean =>
    mutant !== 'an append lets go of its look' &&
    mutant !== 'a change does not take the barrier' &&
    appends.some(({ at }) => at === 'looked' || at === 'stored')
  return [
    {
      name: 'a change to inline takes the lease of the consumer',
      can: ({ change, isInline, changesLeft }) => change.at === 'none' && !isInline && changesLeft > 0,
      run: state => {
        const { consumer } = state
        consumer.fence = newFence(state)
        const to = isLate ? settled(state) : 0
        state.change = { at: 'taken', to, fence: consumer.fence, from: consumer.checkpoint }
        state.changesLeft--
      },
    },
    {
      name: 'a change to asynchronous begins',
      can: ({ change, isInline, changesLeft }) => change.at === 'none' && isInline && changesLeft > 0,
      run: state => {
        state.change = { ...noChange, at: 'taken' }
        state.changesLeft--
      },
    },
    {
      name: 'the change takes the barrier',
      can: state => state.change.at === 'taken' && !isLookedAt(state),
      run: ({ change }) => {
        change.at = 'barrier'
      },
    },
    {
      name: 'the change reads the last events, and applies those that the consumer has not',
      can: ({ change }) => change.at === 'barrier',
      run: state => {
        const { change, consumer, isInline } = state
        const isUnsettled = settled(state) < state.events.length
        if (isUnsettled || (!isInline && change.fence !== consumer.fence)) {
          state.change = { ...noChange }
          state.changesLeft++
          return
        }
        change.from = consumer.checkpoint
        if (!isLate || isInline) change.to = settled(state)
        change.at = 'folded'
      },
    },
    {
      name: 'the change commits',
      can: ({ change }) => change.at === 'folded',
      run: state => {
        const { change, consumer } = state
        if (!state.isInline) applyEvents(state, change.from, change.to)
        const keepsCheckpoint =
          state.isInline && mutant === 'a projection that is no longer inline begins at its old checkpoint'
        if (!keepsCheckpoint) consumer.checkpoint = change.to
        consumer.fence = newFence(state)
        state.isInline = !state.isInline
        state.changes++
        state.change = { ...noChange }
      },
    },
  ]
}

/** Another runner of the consumer, which has its lease from before the change. */
function consumerActions(): Action<BarrierState>[] {
  return [
    {
      name: 'the runner takes the lease',
      can: ({ consumer, isInline, change }) =>
        !isInline && consumer.to === 0 && consumer.held !== consumer.fence && change.at === 'none',
      run: state => {
        const { consumer } = state
        consumer.fence = Math.max(consumer.fence, consumer.held) + 1
        consumer.held = consumer.fence
      },
    },
    {
      name: 'the runner applies what is settled, in its transaction',
      can: state => {
        const { consumer, isInline } = state
        const isHeld = consumer.held === consumer.fence && !isInline
        return isHeld && consumer.to === 0 && settled(state) > consumer.checkpoint
      },
      run: state => {
        const { consumer } = state
        consumer.from = consumer.checkpoint
        consumer.to = settled(state)
      },
    },
    {
      name: 'the runner saves its checkpoint and commits, or has lost its lease',
      can: ({ consumer, change }) => consumer.to > 0 && change.at !== 'folded',
      run: state => {
        const { consumer } = state
        if (consumer.held === consumer.fence && consumer.checkpoint <= consumer.to) {
          applyEvents(state, consumer.from, consumer.to)
          consumer.checkpoint = consumer.to
        } else consumer.held = 0
        consumer.from = 0
        consumer.to = 0
      },
    },
  ]
}
