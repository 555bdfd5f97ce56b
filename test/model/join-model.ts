/**
 * The closing of a join: the branches of a batch end with an event, without one, or fail, and are tried again; the time of
 * the join may be over.
 *
 * Promise: the join runs once, when its policy has what it asks for and not before, with exactly the events that count; no
 * branch counts as empty while its event is on its way; when all branches have ended the join is no longer open.
 *
 * Variables   join: its row and its entries, and how often its execution was queued · branches: how much is open in each,
 *             and whether it failed · of each member of the batch: whether its execution is queued or dead-lettered, and how
 *             many events it has emitted that are not dispatched · transactions: those that are open, with the join as they
 *             have read it.
 * Actions     each transaction has two steps: it locks the workflow and reads the join; it stores what follows, and
 *             commits. What an arrival or the end of a branch means is decided by the code itself (`arrive.ts`).
 * Bounds      those of the caller: the size of the batch, the policy, how often an execution fails, is tried again, and
 *             emits a second event; whether the fan-out names the join, or its
 *             handlers declare what they emit; whether it has a time limit.
 */
import type { Log } from '../../src/events/log.ts'
import type { JoinRoute } from '../../src/workflows/handler.ts'
import { arrive, closeIfDue, type EntryOutcome, endBranch, type Join } from '../../src/workflows/joins/arrive.ts'
import type { Action, Model } from './checker.ts'

export const joinMutants = [
  'transactions do not hold the workflow',
  'the expiry does not look again',
  'branches that ended before the join was opened do not count',
  'an event that comes late counts',
  'the end of a branch counts besides its event',
  'what ends and what begins are not summed up',
  'a second event of a branch counts',
] as const
export type JoinMutant = (typeof joinMutants)[number]

export interface JoinBounds {
  readonly size: number
  readonly policy: JoinRoute['policy']
  readonly quorum?: number
  /** The fan-out names the join, which is open from then on. */
  readonly isNamed: boolean
  /** The handlers declare that they emit what the join waits for: one that ends without opens the join. */
  readonly isDeclared: boolean
  readonly hasTimeout: boolean
  readonly failures: number
  readonly retries: number
  readonly seconds: number
}

interface JoinRow {
  state: Join['state'] | 'none'
  arrived: number
  failed: number
  empty: number
  entries: (EntryOutcome | 'none')[]
}

interface Member {
  at: 'queued' | 'failed' | 'ended'
  /** Events that it has emitted and that are not dispatched. */
  emitted: number
}

/** What a transaction does to one member: its execution ends in one of three ways, is tried again, or events arrive. */
type What = 'emits' | 'emits twice' | 'ends' | 'fails' | 'retries' | 'arrives'

interface Transaction {
  what: What
  members: number[]
  read: JoinRow
}

export interface JoinState {
  join: JoinRow
  runs: number
  branches: { open: number; isFailed: boolean }[]
  members: Member[]
  /** Of the dispatcher, and of two workers. */
  transactions: (Transaction | null)[]
  /** Whether a worker has seen that the time of the join is over. */
  isDue: boolean
  isTimedOut: boolean
  failures: number
  retries: number
  seconds: number
}

export function joinModel(bounds: JoinBounds, mutant?: JoinMutant): Model<JoinState> {
  const members = Array.from({ length: bounds.size }, (_, at) => at)
  const { failures, retries, seconds } = bounds
  const entries = members.map(() => 'none' as const)
  return {
    initial: {
      join: { state: bounds.isNamed ? 'open' : 'none', arrived: 0, failed: 0, empty: 0, entries },
      runs: 0,
      branches: members.map(() => ({ open: 1, isFailed: false })),
      members: members.map(() => ({ at: 'queued', emitted: 0 })),
      transactions: [null, null, null],
      isDue: false,
      isTimedOut: false,
      ...{ failures, retries, seconds },
    },
    actions: [
      ...members.flatMap(at => [1, 2].flatMap(slot => workerActions(slot, at, mutant))),
      ...dispatches(members).map(arriving => dispatchAction(arriving, mutant)),
      ...[0, 1, 2].map(slot => storeAction(slot, bounds, mutant)),
      ...expiryActions(bounds, mutant),
    ],
    invariant: state => invariant(state, bounds),
    isDone: ({ join, members: all, transactions }) =>
      all.every(({ at, emitted }) => at !== 'queued' && emitted === 0) &&
      transactions.every(each => each === null) &&
      // Without any event, and if nobody has said that there would be one, there is no join.
      (join.state === 'none' ? !bounds.isDeclared : join.state !== 'open'),
  }
}

function invariant({ join, runs, members, isTimedOut }: JoinState, bounds: JoinBounds): string | undefined {
  if (runs > 1) return 'the join runs twice'
  const count = (outcome: EntryOutcome | 'none'): number => join.entries.filter(each => each === outcome).length
  if (join.entries.some((each, at) => each === 'empty' && isOnItsWay(members[at]!)))
    return 'a branch counts as empty while its event is on its way'
  if (join.state !== 'closed' || isTimedOut) return undefined
  const wanted = bounds.policy === 'first' ? 1 : bounds.quorum
  if (wanted !== undefined)
    return count('arrived') === wanted
      ? undefined
      : `the join runs with ${count('arrived')} events instead of ${wanted}`
  if (count('none') + count('late') > 0) return 'the join runs although branches have not ended'
  return bounds.policy === 'all' && count('failed') > 0 ? 'the join runs although a branch has failed' : undefined
}

function isOnItsWay({ at, emitted }: Member): boolean {
  return at === 'queued' || emitted > 0
}

/** One event, or two of different branches in one page. */
function dispatches(members: readonly number[]): number[][] {
  return members.flatMap(at => [[at], ...members.filter(other => other > at).map(other => [at, other])])
}

function isLocked({ transactions }: JoinState, mutant: JoinMutant | undefined): boolean {
  return mutant !== 'transactions do not hold the workflow' && transactions.some(each => each !== null)
}

function begin(state: JoinState, slot: number, what: What, members: number[]): void {
  const { join } = state
  state.transactions[slot] = { what, members, read: { ...join, entries: [...join.entries] } }
}

/** A worker ends an execution; which of the two has it is not in the model. */
function workerActions(slot: number, at: number, mutant: JoinMutant | undefined): Action<JoinState>[] {
  const isFree = (state: JoinState): boolean => {
    const isTaken = state.transactions.some(each => each?.members.includes(at) === true && each.what !== 'arrives')
    return state.transactions[slot] === null && !isLocked(state, mutant) && !isTaken
  }
  const action = (what: What, says: string, can: (state: JoinState) => boolean): Action<JoinState> => ({
    name: `worker ${slot} locks the workflow: execution ${at + 1} ${says}`,
    can: state => isFree(state) && can(state),
    run: state => begin(state, slot, what, [at]),
  })
  const isQueued = ({ members }: JoinState): boolean => members[at]!.at === 'queued'
  return [
    action('emits', 'emits its event', isQueued),
    action('emits twice', 'emits two events', state => isQueued(state) && state.seconds > 0),
    action('ends', 'ends without an event', isQueued),
    action('fails', 'fails', state => isQueued(state) && state.failures > 0),
    action('retries', 'is tried again', state => state.members[at]!.at === 'failed' && state.retries > 0),
  ]
}

function dispatchAction(arriving: number[], mutant: JoinMutant | undefined): Action<JoinState> {
  return {
    name: `the dispatcher locks the workflow: events of ${arriving.map(at => at + 1).join(' and ')} arrive`,
    can: state =>
      state.transactions[0] === null &&
      !isLocked(state, mutant) &&
      arriving.every(at => state.members[at]!.emitted > 0),
    run: state => begin(state, 0, 'arrives', arriving),
  }
}

/** As `moveBatches` does. */
function storeAction(slot: number, bounds: JoinBounds, mutant: JoinMutant | undefined): Action<JoinState> {
  return {
    name: `${slot === 0 ? 'the dispatcher' : `worker ${slot}`} stores what follows, and commits`,
    can: state => state.transactions[slot] !== null,
    run: state => {
      const { what, members, read } = state.transactions[slot]!
      state.transactions[slot] = null
      const isUnmet = bounds.isDeclared && (what === 'ends' || what === 'fails')
      const isOpened = state.join.state === 'none' && (what === 'arrives' || isUnmet)
      if (isOpened) state.join.state = 'open'
      const join = joinOf(isOpened ? { ...read, state: 'open' } : read, bounds)
      const ended = members.flatMap(at => moveBranch(state, at, what, mutant))
      if (join.state === ('none' as Join['state'])) return
      if (mutant === 'an event that comes late counts') join.state = 'open'
      if (what === 'arrives') {
        if (mutant === 'a second event of a branch counts') join.entries.clear()
        for (const at of members) arrive(log, join, { id: 'batch', index: at, size: bounds.size }, 1)
      }
      if (mutant === 'the end of a branch counts besides its event') join.entries.clear()
      const endedBefore = isOpened && mutant !== 'branches that ended before the join was opened do not count'
      const all = state.branches.flatMap(({ open }, at) => (open <= 0 && !ended.includes(at) ? [at] : []))
      for (const index of [...ended, ...(endedBefore ? all : [])]) {
        const { isFailed } = state.branches[index]!
        endBranch(join, { batchId: 'batch', correlationId: '', index, size: bounds.size, isFailed, position: 1 })
      }
      if (isOpened) closeIfDue(join, 1)
      storeJoin(state, join, mutant)
    },
  }
}

/** `storeBranches`, and the row of the execution. Returns the branch if it has ended. */
function moveBranch(state: JoinState, at: number, what: What, mutant: JoinMutant | undefined): number[] {
  const [member, branch] = [state.members[at]!, state.branches[at]!]
  const ended: number[] = []
  const change = (by: number): void => {
    branch.open = Math.max(0, branch.open + by)
    if (branch.open === 0 && by !== 0) ended.push(at)
  }
  if (what === 'arrives') {
    member.emitted--
    change(-1)
  } else if (what === 'retries') {
    member.at = 'queued'
    state.retries--
    change(1)
  } else {
    const emitted = what === 'emits' ? 1 : what === 'emits twice' ? 2 : 0
    member.at = what === 'fails' ? 'failed' : 'ended'
    member.emitted += emitted
    if (what === 'emits twice') state.seconds--
    if (what === 'fails') {
      state.failures--
      branch.isFailed = true
    }
    if (mutant === 'what ends and what begins are not summed up') {
      change(-1)
      change(emitted)
    } else change(emitted - 1)
  }
  return ended
}

function joinOf(row: JoinRow, { policy, quorum, size }: JoinBounds): Join {
  const { arrived, failed, empty } = row
  const entries = row.entries.flatMap((entry, at) => (entry === 'none' ? [] : [[at, entry] as const]))
  return {
    ...{ id: 'join', batchId: 'batch', correlationId: '', route: 1, handler: 'clear', size },
    definition: { policy, quorum, onTimeout: 'deadLetter' },
    entries: new Map(entries),
    written: new Map(),
    ...{ arrived, failed, empty, closedBy: undefined, hasChanged: false },
    state: row.state as Join['state'],
  }
}

/** `storeJoins`: entries that have arrived stay, and only a join that is open changes. */
function storeJoin(state: JoinState, join: Join, mutant: JoinMutant | undefined): void {
  const row = state.join
  for (const [index, { outcome }] of join.written) if (row.entries[index] !== 'arrived') row.entries[index] = outcome
  if (row.state !== 'open' && mutant !== 'an event that comes late counts') return
  const { arrived, failed, empty, state: moved } = join
  Object.assign(row, { arrived, failed, empty, state: moved })
  if (join.closedBy !== undefined) state.runs++
}

function expiryActions({ hasTimeout }: JoinBounds, mutant: JoinMutant | undefined): Action<JoinState>[] {
  return [
    {
      name: 'a worker finds that the time of the join is over',
      can: ({ join, isDue }) => hasTimeout && join.state === 'open' && !isDue,
      run: state => {
        state.isDue = true
      },
    },
    {
      name: 'a worker locks the workflow, closes the join and commits',
      can: state => state.isDue && !isLocked(state, mutant),
      run: state => {
        const { join } = state
        state.isDue = false
        if (join.state !== 'open' && mutant !== 'the expiry does not look again') return
        join.state = 'expired'
        state.isTimedOut = true
        state.runs++
      },
    },
  ]
}

/** What `arrive` needs of it: a place for its messages. */
const log = { schema: 'shop', telemetry: { log: { info() {}, warn() {} } } } as unknown as Log
