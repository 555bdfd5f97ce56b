/** The functions of the database that `claim-model.ts` needs, on plain data: each is one transaction. */
import type { ClaimMutant, ClaimState } from './claim-model.ts'

export interface Execution {
  state: 'unqueued' | 'ready' | 'running' | 'held' | 'blocked' | 'delayed' | 'gone'
  fence: number
  /** -1: none. */
  worker: number
}

/** Fail: it is dead-lettered, and its lane parked. Crash, release: ready again. */
export type Kind = 'done' | 'retry' | 'fail' | 'crash' | 'release'

/** The outcome of an attempt, as a worker sends it. */
export interface Outcome {
  id: number
  fence: number
  worker: number
  /** The execution that begins with it, if it still can; -1: none. */
  next: number
  kind: Kind
}

export function newFence(all: readonly { readonly fence: number }[]): number {
  return Math.max(...all.map(({ fence }) => fence)) + 1
}

/** `workflow_complete`: the outcome counts if the execution is still what it was claimed as. */
export function complete(
  state: ClaimState,
  { id, fence, worker, next, kind }: Outcome,
  mutant: ClaimMutant | undefined,
): { isBegun: boolean } {
  const { executions, lane, ended } = state
  const execution = executions[id]!
  const isMatched = execution.fence === fence || mutant === 'an outcome counts under any fence'
  if (execution.state !== 'running' || !isMatched) {
    advance(state, worker, -1, mutant)
    return { isBegun: false }
  }
  if (execution.worker !== worker) state.broken = 'an outcome counts although another worker has taken over'
  if (kind === 'done' || kind === 'fail') {
    executions[id] = { state: 'gone', fence: 0, worker: -1 }
    lane.open--
    lane.active--
    if (kind === 'fail' || mutant !== 'the effects are committed before the completion') ended.push(id)
    if (kind === 'fail' && mutant !== 'the lane is parked after the completion') lane.isParked = true
  } else {
    executions[id] = { state: kind === 'retry' ? 'delayed' : 'ready', fence, worker: -1 }
    const givesUp =
      (kind === 'retry' && mutant === 'an execution that is tried again gives up its place') ||
      (kind === 'crash' && mutant === 'a rescued execution gives up its place in the lane')
    if (givesUp) lane.active--
  }
  const isBegun = advance(state, worker, next, mutant)
  if (kind === 'fail' && mutant === 'the lane is parked after the completion') {
    if (executions.some(({ state: stored }) => stored === 'ready' || stored === 'running'))
      state.broken = 'the lane goes on although the one before has failed'
    lane.isParked = true
  }
  return { isBegun }
}

/** `workflow_advance`: the next executions of the lane begin, or become ready. */
export function advance(state: ClaimState, worker: number, next: number, mutant: ClaimMutant | undefined): boolean {
  const { executions, lane } = state
  const isFree = (): boolean => lane.active < 1 && !lane.isParked
  const held = executions[next]
  const isBegun = held?.state === 'held' && held.worker === worker && isFree()
  if (isBegun) {
    held.state = 'running'
    lane.active++
  }
  for (const each of executions) {
    if (each.state !== 'held' || mutant === 'what is held behind a lost execution stays held') continue
    if (executions.some(head => head.state === 'running' && head.fence === each.fence)) continue
    each.state = 'blocked'
    each.worker = -1
  }
  const first = executions.find(each => each.state === 'blocked')
  if (isFree() && first !== undefined) {
    first.state = 'ready'
    lane.active++
  }
  return isBegun
}

/** `workflow_enqueue` of the last execution: it takes a place in the lane, or queues for one. */
export function enqueue({ executions, lane }: ClaimState): void {
  const execution = executions.at(-1)!
  const hasPlace = lane.active < 1 && !lane.isParked
  execution.state = hasPlace ? 'ready' : 'blocked'
  lane.open++
  if (hasPlace) lane.active++
}
