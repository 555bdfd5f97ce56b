/**
 * Lease, fence and checkpoint of one consumer, with runners that pause, die, freeze, lose their connection and are taken
 * over, and an operator who moves the checkpoint.
 *
 * Promise: each event up to the checkpoint was applied once, and none after it. And: as long as one runner lives, the
 * consumer gets to the end of the log.
 *
 * Variables   row: owner, whether the lease has expired, fence, checkpoint, and which transaction has the row locked ·
 *             applied: how often each event counts in the read model · of each runner: its fence, its place in memory, its
 *             page, and how far its transaction is.
 * Actions     one for each statement of a runner. A pause needs none: an action may come at any later time.
 * Bounds      those of the caller: how many runners, events, and moves by an operator. Pages have one or two events; one
 *             runner may freeze for ever. Takes, deaths and lost answers are without limit: fences are renumbered, since
 *             only their order counts.
 */
import type { Action, Model } from './checker.ts'
import { compareData } from './plain-state.ts'

export const leaseMutants = [
  'the checkpoint is saved without the fence',
  'a lease keeps the fence of the one before',
  'the fence is checked before the effects',
  'the checkpoint is saved after the commit of the effects',
  'the checkpoint is saved before the effects',
  'an operator keeps the fence',
  'a holder without an answer goes on from memory',
  'the checkpoint is read before the lease is taken',
  'a stopped holder keeps its transaction',
  'a lease does not expire',
] as const
export type LeaseMutant = (typeof leaseMutants)[number]

interface Runner {
  /** Unanswered: it does not know how its last transaction ended. */
  at: 'idle' | 'held' | 'applied' | 'saved' | 'unanswered'
  isFrozen: boolean
  fence: number
  /** The checkpoint as it knows it, and the last event of its page. */
  place: number
  to: number
}

/** The present life of the runner with this number, a life that is over, or none. */
type Owner = number
const [gone, none] = [-1, -2]

export interface LeaseBounds {
  readonly runners: number
  readonly events: number
  readonly moves: number
}

export interface LeaseState {
  row: { owner: Owner; isExpired: boolean; fence: number; checkpoint: number; lockedBy: Owner }
  applied: number[]
  runners: Runner[]
  moves: number
}

const idle: Runner = { at: 'idle', isFrozen: false, fence: 0, place: 0, to: 0 }

export function leaseModel({ runners: count, events, moves }: LeaseBounds, mutant?: LeaseMutant): Model<LeaseState> {
  const numbers = Array.from({ length: count }, (_, at) => at)
  return {
    initial: {
      row: { owner: none, isExpired: false, fence: 0, checkpoint: 0, lockedBy: none },
      applied: Array.from({ length: events }, () => 0),
      runners: numbers.map(() => ({ ...idle })),
      moves,
    },
    actions: [
      ...numbers.flatMap(at => [
        ...leaseActions(at, mutant),
        ...batchActions(at, mutant),
        ...failureActions(at, mutant),
      ]),
      ...otherActions(mutant),
    ],
    invariant({ row, applied }) {
      const twice = applied.findIndex(times => times > 1)
      if (twice >= 0) return `event ${twice + 1} was applied twice`
      const missed = applied.findIndex((times, at) => at < row.checkpoint && times === 0)
      return missed < 0 ? undefined : `the checkpoint is past event ${missed + 1}, which was not applied`
    },
    isDone: ({ row, runners }) =>
      row.checkpoint === events && runners.every(({ at, isFrozen }) => isFrozen || at === 'idle'),
    canonical,
  }
}

/** Fences are numbered anew, and the runners are sorted. */
function canonical(state: LeaseState): LeaseState {
  const { row, runners } = state
  const known = [...new Set([0, row.fence, ...runners.map(({ fence }) => fence)])].sort((a, b) => a - b)
  row.fence = known.indexOf(row.fence)
  for (const runner of runners) runner.fence = known.indexOf(runner.fence)
  const sorted = runners.map((runner, at) => ({
    runner,
    isOwner: row.owner === at,
    isLocking: row.lockedBy === at,
    at,
  }))
  sorted.sort(compareData)
  const numberOf = (owner: Owner): Owner => (owner < 0 ? owner : sorted.findIndex(({ at }) => at === owner))
  row.owner = numberOf(row.owner)
  row.lockedBy = numberOf(row.lockedBy)
  state.runners = sorted.map(({ runner }) => runner)
  return state
}

function newFence({ row, runners }: LeaseState): number {
  return Math.max(row.fence, ...runners.map(({ fence }) => fence)) + 1
}

/** The lease: taken, renewed, released. */
function leaseActions(at: number, mutant: LeaseMutant | undefined): Action<LeaseState>[] {
  const name = `runner ${at + 1}`
  const isAwake = ({ runners }: LeaseState): boolean => !runners[at]!.isFrozen
  const isFree = ({ row, runners }: LeaseState): boolean =>
    runners[at]!.at === 'idle' && row.lockedBy === none && (row.owner === none || row.owner === at || row.isExpired)
  const take = (state: LeaseState): void => {
    const { row } = state
    if (mutant !== 'a lease keeps the fence of the one before' || row.fence === 0) row.fence = newFence(state)
    row.owner = at
    row.isExpired = false
  }
  const looksFirst = mutant === 'the checkpoint is read before the lease is taken'
  return [
    {
      name: `${name} looks at the row`,
      can: state => looksFirst && isAwake(state) && state.runners[at]!.at === 'idle',
      run: ({ row, runners }) => {
        runners[at]!.place = row.checkpoint
      },
    },
    {
      name: `${name} takes the lease`,
      can: state => isAwake(state) && isFree(state),
      run: state => {
        take(state)
        const { row, runners } = state
        const place = looksFirst ? runners[at]!.place : row.checkpoint
        runners[at] = { ...idle, at: 'held', fence: row.fence, place, to: place }
      },
    },
    {
      name: `${name} takes the lease, and the answer is lost`,
      can: state => isAwake(state) && isFree(state),
      run: take,
    },
    {
      name: `${name} renews its lease`,
      can: state => {
        const { row, runners } = state
        const isOurs = row.fence === runners[at]!.fence && row.owner !== none
        // A row that is locked is passed over.
        return isAwake(state) && runners[at]!.at !== 'idle' && isOurs && row.isExpired && row.lockedBy === none
      },
      run: ({ row }) => {
        row.isExpired = false
      },
    },
    {
      name: `${name} releases its lease`,
      can: state => isAwake(state) && state.runners[at]!.at === 'held' && state.row.lockedBy === none,
      run: ({ row, runners }) => {
        if (row.fence === runners[at]!.fence) row.owner = none
        runners[at] = { ...idle }
      },
    },
  ]
}

/** A page: its effects and the checkpoint, in one transaction. */
function batchActions(at: number, mutant: LeaseMutant | undefined): Action<LeaseState>[] {
  const name = `runner ${at + 1}`
  const isAt = (state: LeaseState, where: Runner['at']): boolean => {
    const { at: present, isFrozen } = state.runners[at]!
    return present === where && !isFrozen
  }
  const isCommittedAlone = mutant === 'the checkpoint is saved after the commit of the effects'
  const isSavedFirst = mutant === 'the checkpoint is saved before the effects'
  const matchesLast =
    mutant !== 'the checkpoint is saved without the fence' && mutant !== 'the fence is checked before the effects'
  const apply = ({ applied, runners }: LeaseState): void => {
    const { place, to } = runners[at]!
    for (let event = place; event < to; event++) applied[event]!++
  }
  const commit = (state: LeaseState): void => {
    const { row, runners } = state
    row.checkpoint = runners[at]!.to
    row.lockedBy = none
    if (!isCommittedAlone) apply(state)
  }
  return [
    ...[1, 2].map(
      (size): Action<LeaseState> => ({
        name: `${name} applies a page of ${size} in its transaction`,
        can: state => isAt(state, 'held') && state.runners[at]!.place + size <= state.applied.length,
        run: state => {
          const { row, runners } = state
          const runner = runners[at]!
          if (mutant === 'the fence is checked before the effects' && row.fence !== runner.fence) {
            runners[at] = { ...idle }
            return
          }
          runner.to = runner.place + size
          runner.at = 'applied'
          if (isCommittedAlone) apply(state)
          if (isSavedFirst && row.fence === runner.fence) row.checkpoint = runner.to
        },
      }),
    ),
    {
      name: `${name} saves its checkpoint, as the last statement`,
      can: state => isAt(state, 'applied') && state.row.lockedBy === none,
      run: ({ row, runners }) => {
        const runner = runners[at]!
        const isMatched = (row.fence === runner.fence || !matchesLast) && row.checkpoint <= runner.to
        if (isMatched) {
          runner.at = 'saved'
          row.lockedBy = at
        } else runners[at] = { ...idle }
      },
    },
    {
      name: `${name} commits`,
      can: state => isAt(state, 'saved'),
      run: state => {
        commit(state)
        const { fence, to } = state.runners[at]!
        state.runners[at] = { ...idle, at: 'held', fence, place: to, to }
      },
    },
    {
      name: `${name} commits, and the answer is lost`,
      can: state => isAt(state, 'saved'),
      run: state => {
        commit(state)
        state.runners[at]!.at = 'unanswered'
      },
    },
    {
      name: `${name} reads its row again`,
      can: state => isAt(state, 'unanswered'),
      run: ({ row, runners }) => {
        const { fence, place } = runners[at]!
        const from = mutant === 'a holder without an answer goes on from memory' ? place : row.checkpoint
        runners[at] = row.fence === fence ? { ...idle, at: 'held', fence, place: from, to: from } : { ...idle }
      },
    },
  ]
}

/** The end of a runner, or of its transaction. */
function failureActions(at: number, mutant: LeaseMutant | undefined): Action<LeaseState>[] {
  const name = `runner ${at + 1}`
  const isInTransaction = ({ runners }: LeaseState): boolean => ['applied', 'saved'].includes(runners[at]!.at)
  const rollBack = ({ row }: LeaseState): void => {
    if (row.lockedBy === at) row.lockedBy = none
  }
  return [
    {
      name: `the server ends the transaction of ${name}`,
      can: state =>
        isInTransaction(state) && !(state.runners[at]!.isFrozen && mutant === 'a stopped holder keeps its transaction'),
      run: state => {
        rollBack(state)
        state.runners[at]!.at = 'unanswered'
      },
    },
    {
      name: `${name} dies, and starts again`,
      can: ({ runners }) => runners[at]!.at !== 'idle' && !runners[at]!.isFrozen,
      run: state => {
        rollBack(state)
        if (state.row.owner === at) state.row.owner = gone
        state.runners[at] = { ...idle }
      },
    },
    {
      name: `${name} freezes for ever`,
      can: ({ runners }) => runners.every(({ isFrozen }) => !isFrozen),
      run: ({ runners }) => {
        runners[at]!.isFrozen = true
      },
    },
  ]
}

function otherActions(mutant: LeaseMutant | undefined): Action<LeaseState>[] {
  return [
    {
      name: 'the lease expires',
      can: ({ row }) => row.owner !== none && !row.isExpired && mutant !== 'a lease does not expire',
      run: ({ row }) => {
        row.isExpired = true
      },
    },
    {
      name: 'an operator empties the read model and moves the checkpoint back',
      can: ({ row, moves }) => moves > 0 && row.lockedBy === none && row.checkpoint > 0,
      run: state => {
        const { row } = state
        state.moves--
        state.applied = state.applied.map(() => 0)
        row.checkpoint = 0
        row.owner = none
        if (mutant !== 'an operator keeps the fence') row.fence = newFence(state)
      },
    },
  ]
}
