/**
 * Executions that run before anything of them is stored: the dispatcher's page is run first, and one call stores the ends
 * with the checkpoint. Processes that are slow, die, or lose answers, a workflow that is cancelled, a handler that is
 * registered, and a server that can crash.
 *
 * Promise: the end of each execution counts once, and not after its workflow was cancelled; no event is skipped, and none
 * misses a handler that was registered before it was dispatched; an end that was reported to a caller stays; at most one
 * process dies of an event without a row that counts the crash; every event gets to its end.
 *
 * Variables   row: owner, whether the lease has expired, fence, checkpoint, version of the routes · events: of each whether
 *             its workflow is cancelled, its row, how often its end counts, and whether it was reported to a caller, by routes of which
 *             version it was dispatched, of how many processes it was the death while it had no row · processes: what each
 *             holds and knows, the page that it runs, and the ends that it could not store · unflushed: what is on the disk
 *             while a dispatch is not.
 * Actions     one for each statement, and one for the end of a handler, since a process can die before it.
 * Bounds      two processes, two events; a page has one or two. The caller says how often a process dies, a workflow is
 *             cancelled, a handler is registered, an answer is lost, and the server crashes. A lease is given back only when
 *             no event is left that its holder gives a row for the sake of the holder before.
 */
import type { Action, Model } from './checker.ts'
import { compareData } from './plain-state.ts'

export const earlyMutants = [
  'ends are stored under any fence, from any checkpoint',
  'the checkpoint is not compared',
  'the routes are not compared',
  'the states of workflows are not looked at',
  'the checkpoint moves before the handlers have ended',
  'ends are not flushed to the disk',
  'a successor runs before it stores, too',
  'a successor stores only one event before it runs',
] as const
export type EarlyMutant = (typeof earlyMutants)[number]

export interface EarlyBounds {
  readonly deaths: number
  readonly cancels: number
  readonly registrations: number
  readonly lostAnswers: number
  readonly crashes: number
}

interface Event {
  isCancelled: boolean
  row: 'none' | 'ready' | 'running' | 'gone'
  worker: number
  ends: number
  version: number
}

interface Process {
  at: 'idle' | 'held' | 'running' | 'ran' | 'unanswered'
  fence: number
  place: number
  to: number
  version: number
  /** How many events it stores before it runs them. */
  careful: number
  /** The event of a row that it runs. */
  claimed: number
}

interface Database {
  row: { owner: number; isExpired: boolean; fence: number; checkpoint: number; version: number }
  events: Event[]
}

export interface EarlyState extends Database {
  processes: Process[]
  unflushed: Database | null
  /** Of each event: whether its end was reported to a caller, and how many processes died of it while it had no row. */
  seen: { isReported: boolean; deaths: number }[]
  broken: string
  deaths: number
  cancels: number
  registrations: number
  lostAnswers: number
  crashes: number
}

const count = 2
const none = -1
const gone = -2
const idle: Process = { at: 'idle', fence: 0, place: 0, to: 0, version: 0, careful: 0, claimed: none }

export function earlyModel(bounds: EarlyBounds, mutant?: EarlyMutant): Model<EarlyState> {
  const event: Event = {
    ...{ isCancelled: false, row: 'none', worker: none, ends: 0, version: 0 },
  } as Event
  return {
    initial: {
      row: { owner: none, isExpired: false, fence: 0, checkpoint: 0, version: 1 },
      events: Array.from({ length: count }, () => ({ ...event })),
      processes: [{ ...idle }, { ...idle }],
      unflushed: null,
      seen: Array.from({ length: count }, () => ({ isReported: false, deaths: 0 })),
      broken: '',
      ...bounds,
    },
    actions: [
      ...[0, 1].flatMap(at => [...leaseActions(at, mutant), ...pageActions(at, mutant), ...rowActions(at)]),
      ...otherActions(),
    ],
    invariant,
    isDone: ({ row, events, processes }) =>
      row.checkpoint === count &&
      events.every(({ row: own }) => own === 'none' || own === 'gone') &&
      processes.every(({ at }) => at === 'idle' || at === 'held'),
    canonical,
  }
}

function invariant({ row, events, seen, broken }: EarlyState): string | undefined {
  if (broken !== '') return broken
  for (const [at, { ends, row: own, isCancelled }] of events.entries()) {
    const { isReported, deaths } = seen[at]!
    if (ends > 1) return 'the end of an execution counts twice'
    if (at < row.checkpoint && own === 'none' && ends === 0 && !isCancelled) return 'an event was skipped'
    if (isReported && ends === 0) return 'an end that was reported to a caller is gone'
    if (deaths > 1) return 'two processes died of an event, and no crash was counted'
  }
  return undefined
}

/** Fences are numbered anew, and of two states that differ only in the names of the processes one stands for both. */
function canonical(state: EarlyState): EarlyState {
  const places = [state.row, ...state.processes, ...(state.unflushed === null ? [] : [state.unflushed.row])]
  const known = [...new Set([0, ...places.map(({ fence }) => fence)])].sort((a, b) => a - b)
  for (const place of places) place.fence = known.indexOf(place.fence)
  const other = (at: number): number => (at < 0 ? at : 1 - at)
  const renamed = ({ row, events }: Database): Database => ({
    row: { ...row, owner: other(row.owner) },
    events: events.map(each => ({ ...each, worker: other(each.worker) })),
  })
  const swapped: EarlyState = {
    ...state,
    ...renamed(state),
    processes: [...state.processes].reverse(),
    unflushed: state.unflushed && renamed(state.unflushed),
  }
  return compareData(state, swapped) <= 0 ? state : swapped
}

/** A commit that is flushed to the disk takes with it what came before. */
function flush(state: EarlyState): void {
  state.unflushed = null
}

function remember(state: EarlyState): void {
  const { row, events, crashes } = state
  if (crashes > 0) state.unflushed ??= structuredClone({ row, events })
}

function leaseActions(at: number, mutant: EarlyMutant | undefined): Action<EarlyState>[] {
  const name = `process ${at + 1}`
  const own = ({ processes }: EarlyState): Process => processes[at]!
  return [
    {
      name: `${name} takes the lease`,
      can: state => own(state).at === 'idle' && (state.row.owner === none || state.row.isExpired),
      run: state => {
        const { row, processes } = state
        const isAbandoned = row.owner !== none
        row.fence = Math.max(row.fence, ...processes.map(({ fence }) => fence)) + 1
        row.owner = at
        row.isExpired = false
        flush(state)
        const carefulEvents = mutant === 'a successor stores only one event before it runs' ? 1 : count
        const careful = isAbandoned && mutant !== 'a successor runs before it stores, too' ? carefulEvents : 0
        const { claimed } = processes[at]!
        const place = row.checkpoint
        processes[at] = { at: 'held', fence: row.fence, place, to: place, version: row.version, careful, claimed }
      },
    },
    {
      name: `${name} gives the lease back`,
      can: state => own(state).at === 'held' && own(state).careful === 0 && state.row.fence === own(state).fence,
      run: state => {
        state.row.owner = none
        flush(state)
        state.processes[at] = { ...idle, claimed: own(state).claimed }
      },
    },
    {
      name: `${name} reads its row again`,
      can: state => own(state).at === 'unanswered',
      run: state => readAgain(state, at),
    },
  ]
}

/** After a failure only the stored checkpoint counts. */
function readAgain({ row, processes }: EarlyState, at: number): void {
  const { fence, claimed } = processes[at]!
  const place = row.checkpoint
  if (row.fence !== fence) processes[at] = { ...idle, claimed }
  else Object.assign(processes[at]!, { at: 'held', place, to: place, version: row.version })
}

/** A page: its handlers, and the call that stores it. */
function pageActions(at: number, mutant: EarlyMutant | undefined): Action<EarlyState>[] {
  const name = `process ${at + 1}`
  const own = ({ processes }: EarlyState): Process => processes[at]!
  const isFlushed = mutant !== 'ends are not flushed to the disk'
  const beforeEnds = mutant === 'the checkpoint moves before the handlers have ended'
  return [
    ...[1, 2].map(
      (size): Action<EarlyState> => ({
        name: `${name} runs a page of ${size} of which nothing is stored`,
        can: state => own(state).at === 'held' && own(state).careful === 0 && own(state).place + size <= count,
        run: state => {
          const process = own(state)
          process.at = 'running'
          process.to = process.place + size
          if (beforeEnds && state.row.fence === process.fence) state.row.checkpoint = process.to
        },
      }),
    ),
    {
      name: `${name}: its handlers have ended`,
      can: state => own(state).at === 'running',
      run: state => void Object.assign(own(state), { at: 'ran' }),
    },
    {
      name: `${name} stores the ends and the checkpoint`,
      can: state => own(state).at === 'ran',
      run: state => store(state, true),
    },
    {
      name: `${name} stores the ends and the checkpoint, and the answer is lost`,
      can: state => own(state).at === 'ran' && state.lostAnswers > 0,
      run: state => {
        state.lostAnswers--
        store(state, false)
      },
    },
    {
      name: `${name} stores an event before it runs it`,
      can: state => own(state).at === 'held' && own(state).careful > 0 && own(state).place < count,
      run: state => {
        const process = own(state)
        process.to = process.place + 1
        if (refusal(state) !== undefined) return
        remember(state)
        queue(state)
        process.careful--
      },
    },
  ]

  /** Why the call stores nothing; what the process does then is done. */
  function refusal(state: EarlyState): string | undefined {
    const { row, processes } = state
    const process = own(state)
    const isAny = mutant === 'ends are stored under any fence, from any checkpoint'
    const isLost = row.fence !== process.fence && !isAny
    if (isLost) {
      processes[at] = { ...idle, claimed: process.claimed }
      return 'lost'
    }
    const isMoved =
      row.checkpoint !== process.place && mutant !== 'the checkpoint is not compared' && !isAny && !beforeEnds
    const isOutdated = row.version !== process.version && mutant !== 'the routes are not compared'
    if (!isMoved && !isOutdated) return undefined
    readAgain(state, at)
    return 'moved or outdated'
  }

  function store(state: EarlyState, isAnswered: boolean): void {
    if (refusal(state) !== undefined) return
    const { row, events } = state
    const process = own(state)
    const page = events.slice(process.place, process.to)
    if (page.some(({ isCancelled }) => isCancelled) && mutant !== 'the states of workflows are not looked at') {
      remember(state)
      queue(state)
      return
    }
    if (isFlushed) flush(state)
    else remember(state)
    for (const event of page) {
      if (event.isCancelled) state.broken = 'an end counts although the workflow was cancelled before'
      event.ends++
      dispatched(state, event, process.version)
    }
    row.checkpoint = Math.max(row.checkpoint, process.to)
    Object.assign(process, { at: isAnswered ? 'held' : 'unanswered', place: process.to })
    if (isAnswered) for (const event of page) state.seen[events.indexOf(event)]!.isReported = true
  }

  /** The long way: a row for each event of a workflow that is active. */
  function queue(state: EarlyState): void {
    const process = own(state)
    for (const event of state.events.slice(process.place, process.to)) {
      if (!event.isCancelled) event.row = 'ready'
      dispatched(state, event, process.version)
    }
    state.row.checkpoint = process.to
    Object.assign(process, { at: 'held', place: process.to })
  }

  function dispatched(state: EarlyState, event: Event, version: number): void {
    event.version = version
    if (version !== state.row.version) state.broken = 'an event was dispatched without a handler that was registered'
  }
}

/** Rows, as any worker runs them. */
function rowActions(at: number): Action<EarlyState>[] {
  const name = `process ${at + 1}`
  const own = ({ processes }: EarlyState): Process => processes[at]!
  return [
    {
      name: `${name} claims an execution that has a row`,
      can: state => own(state).claimed === none && state.events.some(({ row }) => row === 'ready'),
      run: state => {
        const claimed = state.events.findIndex(({ row }) => row === 'ready')
        remember(state)
        Object.assign(state.events[claimed]!, { row: 'running', worker: at })
        own(state).claimed = claimed
      },
    },
    {
      name: `${name} stores the end of an execution that has a row`,
      can: state => own(state).claimed !== none,
      run: state => {
        const { claimed } = own(state)
        const event = state.events[claimed]!
        own(state).claimed = none
        if (event.row !== 'running' || event.worker !== at) return
        event.row = 'gone'
        event.ends++
        event.worker = none
        flush(state)
        state.seen[claimed]!.isReported = true
      },
    },
  ]
}

function otherActions(): Action<EarlyState>[] {
  return [
    {
      name: 'the lease expires',
      can: ({ row }) => row.owner !== none && !row.isExpired,
      run: ({ row }) => void Object.assign(row, { isExpired: true }),
    },
    ...[0, 1].map(
      (at): Action<EarlyState> => ({
        name: `process ${at + 1} dies, and starts again`,
        can: ({ deaths, processes }) => deaths > 0 && (processes[at]!.at !== 'idle' || processes[at]!.claimed !== none),
        run: state => {
          const { at: where, place, to, claimed } = state.processes[at]!
          state.deaths--
          if (where === 'running') for (const event of state.seen.slice(place, to)) event.deaths++
          if (state.row.owner === at) state.row.owner = gone
          // Others find that its heartbeat is too old, and count the crash.
          if (claimed !== none && state.events[claimed]!.worker === at && state.events[claimed]!.row === 'running')
            Object.assign(state.events[claimed]!, { row: 'ready', worker: none })
          state.processes[at] = { ...idle }
        },
      }),
    ),
    ...Array.from(
      { length: count },
      (_, at): Action<EarlyState> => ({
        name: `the workflow of event ${at + 1} is cancelled`,
        can: ({ cancels, events }) => cancels > 0 && !events[at]!.isCancelled && events[at]!.ends === 0,
        run: state => {
          const event = state.events[at]!
          state.cancels--
          event.isCancelled = true
          if (event.row !== 'none') Object.assign(event, { row: 'gone', worker: none })
          flush(state)
        },
      }),
    ),
    {
      name: 'an execution that its worker does not have is released',
      can: state => state.events.some((event, id) => isForgotten(state, event, id)),
      run: state => {
        for (const [id, event] of state.events.entries())
          if (isForgotten(state, event, id)) Object.assign(event, { row: 'ready', worker: none })
        flush(state)
      },
    },
    {
      name: 'a handler is registered',
      can: ({ registrations }) => registrations > 0,
      run: state => {
        state.registrations--
        state.row.version++
        flush(state)
      },
    },
    {
      name: 'the server crashes, and with it what is not on the disk',
      can: ({ crashes, unflushed }) => crashes > 0 && unflushed !== null,
      run: state => {
        state.crashes--
        Object.assign(state, state.unflushed)
        state.unflushed = null
      },
    },
  ]
}

function isForgotten({ processes }: EarlyState, { row, worker }: Event, id: number): boolean {
  return row === 'running' && processes[worker]!.claimed !== id
}
