/**
 * Claims, rescues and completions of the executions of one ordered lane, by workers that are slow, die, or lose answers,
 * on a server that can crash.
 *
 * Promise: the effects of each execution count once, in the order of the lane; an outcome counts only for the attempt that
 * holds the execution; what a worker has is found by others when it is gone; every execution is completed in the end.
 *
 * Variables   executions: state, fence and worker of each row · lane: active, open, parked · runners: of each worker
 *             whether its heartbeat is fresh, and whether its row has routes · of each worker what it has in memory, and the
 *             outcome it has sent · late: an outcome whose sender no longer waits for it, still on its way · rescue: the
 *             transaction that takes over · unflushed: what is on the disk while claims are not.
 * Actions     one for each transaction, since each holds the rows of lane and executions that it looks at; a rescue has two
 *             steps, because what it reads first is not locked.
 * Bounds      two workers; the lane has as many executions as the caller says, the last of which is dispatched at any time.
 *             The caller says how often a worker dies, an attempt is tried again or fails for good and parks the lane, an
 *             outcome is overtaken by itself, and the server crashes. Slow workers, rescues and lost answers are without
 *             limit: fences are renumbered, since only their order counts.
 */
import type { Action, Model } from './checker.ts'
import { advance, complete, type Execution, enqueue, type Kind, newFence, type Outcome } from './claim-rows.ts'
import { compareData } from './plain-state.ts'

export const claimMutants = [
  'an outcome counts under any fence',
  'the effects are committed before the completion',
  'a claim does not look at the row of its worker',
  'a rescue looks once',
  'what is held behind a lost execution stays held',
  'a rescued execution gives up its place in the lane',
  'an execution that is tried again gives up its place',
  'the lane is parked after the completion',
  'the fence is drawn in the claim',
  'a lost answer to a claim is not looked for',
] as const
export type ClaimMutant = (typeof claimMutants)[number]

/** How many executions the lane has, and how often each of these may happen. */
export interface ClaimBounds {
  readonly executions: number
  /** A worker dies for good. */
  readonly deaths: number
  /** An attempt fails and is tried again; fails for good. */
  readonly retries: number
  readonly failures: number
  /** The first of two outcomes that were sent is still on its way. */
  readonly resends: number
  /** The server crashes. */
  readonly crashes: number
}

interface Worker {
  isDead: boolean
  /** Its heartbeat is fresh; its row has routes. */
  isAlive: boolean
  hasRoutes: boolean
  /** What it has claimed and not completed: the first one runs. */
  group: number[]
  fence: number
  sent: Outcome | null
}

/** An execution that a worker has, as it was read. */
interface Left {
  id: number
  fence: number
  isRunning: boolean
}

interface Database {
  executions: Execution[]
  lane: { active: number; open: number; isParked: boolean }
}

export interface ClaimState extends Database {
  workers: Worker[]
  late: Outcome | null
  /** Whose row is locked, and the executions that were read. */
  rescue: { of: number; left: Left[] } | null
  unflushed: Database | null
  /** What has ended, in order: an execution twice if its effects count twice. */
  ended: number[]
  broken: string
  /** What may still happen. */
  deaths: number
  retries: number
  failures: number
  resends: number
  crashes: number
}

export function claimModel({ executions, ...budget }: ClaimBounds, mutant?: ClaimMutant): Model<ClaimState> {
  const worker: Worker = { isDead: false, isAlive: true, hasRoutes: true, group: [], fence: 0, sent: null }
  const state = (at: number): Execution['state'] => (at === 0 ? 'ready' : at < executions - 1 ? 'blocked' : 'unqueued')
  return {
    initial: {
      executions: Array.from({ length: executions }, (_, at) => ({ state: state(at), fence: 0, worker: -1 })),
      lane: { active: 1, open: executions - 1, isParked: false },
      workers: [{ ...worker }, { ...worker }],
      late: null,
      rescue: null,
      unflushed: null,
      ended: [],
      broken: '',
      ...budget,
    },
    actions: [
      ...[0, 1].flatMap(at => [...claimActions(at, mutant), ...outcomeActions(at, mutant), ...lifeActions(at, mutant)]),
      ...otherActions(mutant),
    ],
    invariant: state => invariant(state, mutant),
    isDone: ({ executions: all, rescue }) => rescue === null && all.every(each => each.state === 'gone'),
    canonical,
  }
}

function invariant(state: ClaimState, mutant: ClaimMutant | undefined): string | undefined {
  const { executions, lane, workers, ended, broken } = state
  if (broken !== '') return broken
  if (new Set(ended).size < ended.length) return 'the effects of an execution count twice'
  if (ended.some((id, at) => at > 0 && id < ended[at - 1]!)) return 'executions of the lane were completed out of order'
  if (executions.filter(each => each.state === 'running').length > 1) return 'two executions of the lane run at once'
  const isLost = (each: Execution): boolean => each.worker < 0 || !workers[each.worker]!.hasRoutes
  if (executions.some(each => isTaken(each.state) && isLost(each)))
    return 'a worker has executions, and no other worker would ever look for them'
  // Of a mutant the promise has to break, not its means.
  if (mutant !== undefined) return undefined
  const active = executions.filter(each => ['ready', 'running', 'delayed'].includes(each.state)).length
  const open = executions.filter(each => each.state !== 'gone' && each.state !== 'unqueued').length
  const isCounted = active <= 1 && active === lane.active && open === lane.open
  return isCounted ? undefined : 'the counts of the lane are not those of its executions'
}

function isTaken(state: Execution['state']): boolean {
  return state === 'running' || state === 'held'
}

/** Fences are numbered anew, and of two states that differ only in the names of the workers one stands for both. */
function canonical(state: ClaimState): ClaimState {
  const places = fencesOf(state)
  const known = [...new Set([0, ...places.map(({ fence }) => fence)])].sort((a, b) => a - b)
  for (const place of places) place.fence = known.indexOf(place.fence)
  const order = compareData(state.workers[0], state.workers[1])
  if (order < 0) return state
  const other = (worker: number): number => (worker < 0 ? worker : 1 - worker)
  const rename = <T extends { worker: number }>(each: T): T => ({ ...each, worker: other(each.worker) })
  const swapped: ClaimState = {
    ...state,
    executions: state.executions.map(rename),
    workers: [...state.workers].reverse().map(each => ({ ...each, sent: each.sent && rename(each.sent) })),
    late: state.late && rename(state.late),
    rescue: state.rescue && { ...state.rescue, of: other(state.rescue.of) },
    unflushed: state.unflushed && { ...state.unflushed, executions: state.unflushed.executions.map(rename) },
  }
  return order === 0 && compareData(state, swapped) <= 0 ? state : swapped
}

/** A commit that is flushed to the disk takes with it what came before. */
function flush(state: ClaimState): void {
  state.unflushed = null
}

function claimActions(at: number, mutant: ClaimMutant | undefined): Action<ClaimState>[] {
  const name = `worker ${at + 1}`
  const own = ({ workers }: ClaimState): Worker => workers[at]!
  const isChecked = mutant !== 'a claim does not look at the row of its worker'
  const canClaim = (state: ClaimState): boolean => {
    const { isDead, group, sent, hasRoutes } = own(state)
    const isLocked = state.rescue?.of === at
    const isAllowed = !isChecked || (hasRoutes && !isLocked)
    return (
      !isDead &&
      group.length === 0 &&
      sent === null &&
      isAllowed &&
      state.executions.some(each => each.state === 'ready')
    )
  }
  const claim = (state: ClaimState): { group: number[]; fence: number } => {
    const { executions, lane, crashes } = state
    const fence = newFence(mutant === 'the fence is drawn in the claim' ? executions : fencesOf(state))
    if (crashes > 0) state.unflushed ??= structuredClone({ executions, lane })
    const head = executions.findIndex(each => each.state === 'ready')
    const group = [head]
    executions[head] = { state: 'running', fence, worker: at }
    for (let id = head + 1; executions[id]?.state === 'blocked' && !lane.isParked; id++) {
      executions[id] = { state: 'held', fence, worker: at }
      group.push(id)
    }
    return { group, fence }
  }
  return [
    {
      name: `${name} claims`,
      can: canClaim,
      run: state => void Object.assign(own(state), claim(state)),
    },
    {
      name: `${name} claims, and the answer is lost`,
      can: canClaim,
      run: state => void claim(state),
    },
    {
      name: `${name} finds that its executions are another one's`,
      can: state => {
        const { isDead, group, fence } = own(state)
        const isOurs = (id: number): boolean =>
          state.executions[id]!.worker === at && state.executions[id]!.fence === fence
        return !isDead && group.length > 0 && !group.some(isOurs)
      },
      run: state => {
        const worker = own(state)
        state.late ??= worker.sent
        Object.assign(worker, { group: [], fence: 0, sent: null })
      },
    },
    {
      name: `${name} releases executions that it does not know`,
      can: state => {
        const { isDead, group } = own(state)
        if (isDead || mutant === 'a lost answer to a claim is not looked for') return false
        return state.executions.some((each, id) => each.worker === at && !group.includes(id))
      },
      run: state => {
        const { group } = own(state)
        const forgotten = state.executions.flatMap((each, id) =>
          each.worker === at && !group.includes(id) ? [leftOf(each, id)] : [],
        )
        release(state, at, forgotten, 'release', mutant)
      },
    },
  ]
}

/** All that has a fence. */
function fencesOf({ executions, workers, late, rescue, unflushed }: ClaimState): { fence: number }[] {
  const sent = [late, ...workers.map(worker => worker.sent)].filter(each => each !== null)
  return [...executions, ...workers, ...sent, ...(rescue?.left ?? []), ...(unflushed?.executions ?? [])]
}

function leftOf({ fence, state }: Execution, id: number): Left {
  return { id, fence, isRunning: state === 'running' }
}

/** Those that run are released by an outcome; what is held behind them goes back by advancing the lane. */
function release(
  state: ClaimState,
  worker: number,
  left: readonly Left[],
  kind: Kind,
  mutant: ClaimMutant | undefined,
): void {
  const running = left.filter(({ isRunning }) => isRunning)
  for (const { id, fence } of running) complete(state, { id, fence, worker, next: -1, kind }, mutant)
  if (running.length === 0) advance(state, worker, -1, mutant)
  flush(state)
}

/** The outcome of the first execution of the group, from the end of the handler's code to the answer. */
function outcomeActions(at: number, mutant: ClaimMutant | undefined): Action<ClaimState>[] {
  const name = `worker ${at + 1}`
  const own = ({ workers }: ClaimState): Worker => workers[at]!
  const canEnd = (state: ClaimState): boolean => {
    const { isDead, group, sent } = own(state)
    return !isDead && group.length > 0 && sent === null
  }
  const send = (state: ClaimState, kind: Kind): void => {
    const worker = own(state)
    const { group, fence } = worker
    worker.sent = { id: group[0]!, fence, worker: at, next: kind === 'done' ? (group[1] ?? -1) : -1, kind }
    if (kind === 'done' && mutant === 'the effects are committed before the completion') {
      const { state: stored, fence: present } = state.executions[group[0]!]!
      if (stored === 'running' && present === fence) state.ended.push(group[0]!)
    }
  }
  return [
    { name: `the handler of ${name} returns`, can: canEnd, run: state => send(state, 'done') },
    {
      name: `the handler of ${name} throws, and is to be tried again`,
      can: state => canEnd(state) && state.retries > 0,
      run: state => {
        send(state, 'retry')
        state.retries--
      },
    },
    {
      name: `the handler of ${name} fails for good`,
      can: state => canEnd(state) && state.failures > 0,
      run: state => {
        send(state, 'fail')
        state.failures--
      },
    },
    {
      name: `the outcome of ${name} is stored or refused`,
      can: state => own(state).sent !== null,
      run: state => {
        const worker = own(state)
        const { next } = worker.sent!
        const { isBegun } = complete(state, worker.sent!, mutant)
        flush(state)
        worker.sent = null
        worker.group = isBegun && next >= 0 ? worker.group.slice(1) : []
        if (worker.group.length === 0) worker.fence = 0
      },
    },
    {
      name: `the outcome of ${name} is stored or refused, and the answer is lost: it is sent again`,
      can: state => own(state).sent !== null,
      run: state => {
        complete(state, own(state).sent!, mutant)
        flush(state)
      },
    },
    {
      name: `${name} loses its connection and sends its outcome again, the first one is still on its way`,
      can: state => own(state).sent !== null && state.late === null && state.resends > 0,
      run: state => {
        state.resends--
        state.late = { ...own(state).sent! }
      },
    },
  ]
}

/** Heartbeats, and what others do when there is none. */
function lifeActions(at: number, mutant: ClaimMutant | undefined): Action<ClaimState>[] {
  const name = `worker ${at + 1}`
  const own = ({ workers }: ClaimState): Worker => workers[at]!
  const takenBy = (state: ClaimState): Left[] =>
    state.executions.flatMap((each, id) => (each.worker === at && isTaken(each.state) ? [leftOf(each, id)] : []))
  return [
    {
      name: `the heartbeat of ${name} is too old`,
      can: state => own(state).isAlive,
      run: state => {
        own(state).isAlive = false
      },
    },
    {
      name: `${name} sends a heartbeat`,
      can: state => {
        const { isDead, isAlive, hasRoutes } = own(state)
        return !isDead && !(isAlive && hasRoutes) && state.rescue?.of !== at
      },
      run: state => {
        Object.assign(own(state), { isAlive: true, hasRoutes: true })
        flush(state)
      },
    },
    {
      name: `${name} dies`,
      can: state => state.deaths > 0 && !own(state).isDead,
      run: state => {
        const worker = own(state)
        state.deaths--
        state.late ??= worker.sent
        Object.assign(worker, { isDead: true, group: [], fence: 0, sent: null })
        // The transaction of a rescue that it was in the middle of is rolled back.
        if (state.rescue?.of === 1 - at) state.rescue = null
      },
    },
    {
      name: `worker ${2 - at} takes over from ${name}: it locks the row, and reads what is left`,
      can: state => {
        const { isAlive, hasRoutes } = own(state)
        return !isAlive && hasRoutes && state.rescue === null && !state.workers[1 - at]!.isDead
      },
      run: state => {
        state.rescue = { of: at, left: takenBy(state) }
      },
    },
    {
      name: `worker ${2 - at} releases what ${name} had`,
      can: state => state.rescue?.of === at,
      run: state => {
        const { left } = state.rescue!
        state.rescue = null
        if (left.length > 0) release(state, at, left, 'crash', mutant)
        if (left.length === 0 || mutant === 'a rescue looks once') own(state).hasRoutes = false
        flush(state)
      },
    },
  ]
}

function otherActions(mutant: ClaimMutant | undefined): Action<ClaimState>[] {
  return [
    {
      name: 'an outcome that was on its way is stored or refused',
      can: ({ late }) => late !== null,
      run: state => {
        complete(state, state.late!, mutant)
        state.late = null
        flush(state)
      },
    },
    {
      name: 'the dispatcher queues the last execution',
      can: ({ executions }) => executions.at(-1)!.state === 'unqueued',
      run: state => {
        enqueue(state)
        flush(state)
      },
    },
    {
      name: 'the time of the next try has come',
      can: ({ executions }) => executions.some(({ state }) => state === 'delayed'),
      run: state => {
        const execution = state.executions.find(each => each.state === 'delayed')!
        if (mutant === 'an execution that is tried again gives up its place' && state.lane.active > 0) {
          execution.state = 'blocked'
        } else {
          execution.state = 'ready'
          if (mutant === 'an execution that is tried again gives up its place') state.lane.active++
        }
        flush(state)
      },
    },
    {
      name: 'an operator unparks the lane',
      can: ({ lane }) => lane.isParked,
      run: state => {
        state.lane.isParked = false
        advance(state, -1, -1, mutant)
        flush(state)
      },
    },
    {
      name: 'the server crashes, and with it claims that are not on the disk',
      can: ({ crashes, unflushed }) => crashes > 0 && unflushed !== null,
      run: state => {
        Object.assign(state, structuredClone(state.unflushed), { unflushed: null, rescue: null, late: null })
        state.crashes--
      },
    },
  ]
}
