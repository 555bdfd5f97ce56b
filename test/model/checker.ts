/**
 * A model checker: explores every state that a model can reach, by every order of its actions.
 *
 *     initial ──► each action that can happen ──► new states ──► … until there is none
 *                                                    └── the invariant does not hold ──► the shortest way there, as steps
 *
 * A state is plain data (`plain-state.ts`). The search is breadth first, so the first state that breaks the invariant is one
 * with the fewest steps.
 *
 * It also looks for states that are stuck. A model says what its goal is (`isDone`: all work is done); a state from which
 * no order of actions leads to the goal is a counter-example, whether nothing can happen in it or only the same things
 * again and again.
 *
 * Limits: it says nothing about models larger than the bounds that they state, nor about how soon the goal is reached.
 */
import { copyOf, openKeys } from './plain-state.ts'

export interface Model<State> {
  readonly initial: State
  readonly actions: readonly Action<State>[]
  /** The promise that is broken in this state, as a sentence; undefined if none is. */
  invariant(state: State): string | undefined
  /** Whether all work is done. Without it, no state counts as stuck. */
  isDone?(state: State): boolean
  /**
   * One state for all that differ only in which of several equal processes does what. It may change the state that it is
   * given, and every part of the model has to treat these processes alike.
   */
  canonical?(state: State): State
}

export interface Action<State> {
  /** A sentence: it is a step of a counter-example. */
  readonly name: string
  readonly can: (state: State) => boolean
  /** Changes the state that it is given. */
  readonly run: (state: State) => unknown
}

export interface Explored {
  /** How many states were reached; all of them, if there is no counter-example. */
  readonly states: number
  readonly counterExample: CounterExample | undefined
}

export interface CounterExample {
  readonly reason: string
  /** The names of the actions that lead there, in order. */
  readonly steps: readonly string[]
}

/** More states than any model here has: one that grows without bound ends with an error instead of using up the memory. */
const maxStates = 3_000_000

export function explore<State>(model: Model<State>): Explored {
  const { actions, invariant, isDone } = model
  const keyOf = openKeys()
  const numbers = new Map<string, number>()
  /** States that were reached and not looked at yet. */
  let open: State[] = []
  /** By state, the one from which it was reached first, and the action that led from there. */
  const parents: number[] = []
  const by: number[] = []
  /** From which state to which: two numbers for each step. */
  const edges: number[] = []
  const done: number[] = []
  let looked = 0

  const enter = (given: State, action: number): number => {
    const state = model.canonical?.(given) ?? given
    const key = keyOf(state)
    const known = numbers.get(key)
    if (known !== undefined) return known
    if (numbers.size === maxStates) throw new Error(`The model has more than ${maxStates} states: lower its bounds.`)
    open.push(state)
    parents.push(looked)
    by.push(action)
    return numbers.set(key, numbers.size).size - 1
  }

  enter(copyOf(model.initial), -1)
  while (open.length > 0) {
    const states = open
    open = []
    for (const state of states) {
      const broken = invariant(state)
      if (broken !== undefined) return { states: numbers.size, counterExample: exampleOf(looked, broken) }
      if (isDone?.(state) === true) done.push(looked)
      for (const [at, { can, run }] of actions.entries()) {
        if (!can(state)) continue
        const next = copyOf(state)
        run(next)
        const to = enter(next, at)
        if (isDone !== undefined) edges.push(looked, to)
      }
      looked++
    }
  }
  const stuck = isDone === undefined ? undefined : firstStuck(numbers.size, edges, done)
  const reason = 'from here on the work can never be completed'
  return { states: numbers.size, counterExample: stuck === undefined ? undefined : exampleOf(stuck, reason) }

  function exampleOf(number: number, reason: string): CounterExample {
    const path: number[] = []
    for (let at = number; at > 0; at = parents[at]!) path.unshift(by[at]!)
    return { reason, steps: stepsOf(model, path) }
  }
}

/**
 * The names of the actions on a way through canonical states. It is walked beside the states that these stand for, so that
 * equal processes keep their names on the way.
 */
function stepsOf<State>(model: Model<State>, path: readonly number[]): string[] {
  const { actions } = model
  const canonical = (state: State): State => model.canonical?.(copyOf(state)) ?? state
  const after = (state: State, { run }: Action<State>): State => {
    const next = copyOf(state)
    run(next)
    return next
  }
  let state = copyOf(model.initial)
  let stands = canonical(state)
  return path.map(at => {
    stands = canonical(after(stands, actions[at]!))
    const key = JSON.stringify(stands)
    const action = actions.find(each => each.can(state) && JSON.stringify(canonical(after(state, each))) === key)
    if (action === undefined) throw new Error('The canonical form takes processes for equal that are not.')
    state = after(state, action)
    return action.name
  })
}

/** As it is printed when a test fails. */
export function describeExample({ reason, steps }: CounterExample): string {
  return [...steps.map((step, at) => `${String(at + 1).padStart(3)}. ${step}`), `     ${reason}`].join('\n')
}

/** The first state from which none of those leads to one that is done. */
function firstStuck(states: number, edges: readonly number[], done: readonly number[]): number | undefined {
  const firstInto = new Int32Array(states).fill(-1)
  const nextInto = new Int32Array(edges.length / 2)
  for (let edge = 0; edge < nextInto.length; edge++) {
    const to = edges[2 * edge + 1]!
    nextInto[edge] = firstInto[to]!
    firstInto[to] = edge
  }
  const canComplete = new Uint8Array(states)
  const open = [...done]
  for (const each of open) canComplete[each] = 1
  for (let state = open.pop(); state !== undefined; state = open.pop())
    for (let edge = firstInto[state]!; edge >= 0; edge = nextInto[edge]!) {
      const from = edges[2 * edge]!
      if (canComplete[from] === 1) continue
      canComplete[from] = 1
      open.push(from)
    }
  const stuck = canComplete.indexOf(0)
  return stuck < 0 ? undefined : stuck
}
