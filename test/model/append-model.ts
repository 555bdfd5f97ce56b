/**
 * The outcome of an append whose connection breaks: it is sent again with the same ids, while the first one may still be on
 * its way.
 *
 * Promise: an append whose answer is that it is stored is in the log once, at that version; one that was
 * refused is not, and will never be; under one idempotency key the content is stored once.
 *
 * Variables   log: the id of each event of one stream, by version · isArchived · key: the id that is stored under the
 *             idempotency key, 0 for none · calls: the statements that the server has not finished, whether or not a client
 *             still waits for them · of each client: its answer.
 * Actions     a call takes its key, locks the stream and decides, and commits; a connection breaks before or after that.
 *             What an outcome means to the caller is decided by the code itself (`send.ts`).
 * Bounds      those of the caller: what is expected of the stream, one client or two with the same key, how often each sends
 *             again, how many appends others make to the stream, and how often it is archived and restored.
 */

import { type Expected, isExpected } from '../../src/events/append/prepare.ts'
import {
  type Append,
  mayStillBeStored,
  type Outcome,
  type OutcomeKind,
  repeatedBy,
} from '../../src/events/append/send.ts'
import type { Action, Model } from './checker.ts'
import { compareData } from './plain-state.ts'

export const appendMutants = [
  'an append that is sent again does not check its ids',
  'ids are checked before the stream is locked',
  'after a lost connection the ids are only looked up',
  'a refusal of an append that was sent again is final',
  'an append that is sent again has new ids',
  'ids are not unique',
  'a lost connection counts as a failure',
  'a key is looked up, and stored with the events',
  'a refused append leaves its key',
] as const
export type AppendMutant = (typeof appendMutants)[number]

export interface AppendBounds {
  readonly expected: Expected
  readonly clients: number
  readonly hasKey: boolean
  readonly resends: number
  readonly others: number
  readonly archivings: number
}

/** A statement on its way, or a transaction that has not ended. */
interface Call {
  client: number
  /** From 1: a client that loses its connection makes another call. */
  number: number
  id: number
  /** Whether its client still waits for the answer. */
  isAwaited: boolean
  checksIds: boolean
  /** Keyed: it holds the key. Looked (of a mutant): it has looked for its id. Decided: it holds the stream, too. */
  at: 'sent' | 'keyed' | 'looked' | 'decided'
  hasNewKey: boolean
  /** What it has found, or decided. */
  kind: OutcomeKind
  version: number
}

interface Client {
  answer: 'none' | 'stored' | 'refused' | 'unknown'
  version: number
  resends: number
  isUnanswered: boolean
  hasBegun: boolean
}

export interface AppendState {
  log: number[]
  isArchived: boolean
  key: number
  calls: Call[]
  clients: Client[]
  others: number
  archivings: number
}

const ofOthers = 9

export function appendModel(bounds: AppendBounds, mutant?: AppendMutant): Model<AppendState> {
  const clients = Array.from({ length: bounds.clients }, (_, at) => at)
  return {
    initial: {
      log: [],
      isArchived: false,
      key: 0,
      calls: [],
      clients: clients.map(() => ({
        ...{ answer: 'none', version: 0, resends: bounds.resends, isUnanswered: false, hasBegun: false },
      })),
      others: bounds.others,
      archivings: bounds.archivings,
    },
    actions: [
      ...clients.flatMap(at => clientActions(at, bounds, mutant)),
      ...clients.flatMap(client =>
        Array.from({ length: bounds.resends + 1 }, (_, at) => callActions(client, at + 1, bounds, mutant)).flat(),
      ),
      ...otherActions(),
    ],
    invariant: state => invariant(state, bounds),
    isDone: ({ calls, clients: all }) => calls.length === 0 && all.every(({ answer }) => answer !== 'none'),
    canonical(state) {
      state.calls.sort(compareData)
      return state
    },
  }
}

/** The ids of a client: its own, and one that only a mutant uses. */
function idsOf(client: number): [number, number] {
  return [client + 1, client + 5]
}

function invariant({ log, clients, key }: AppendState, { hasKey }: AppendBounds): string | undefined {
  const all = clients.map((_, at) => log.filter(id => idsOf(at).includes(id)).length)
  const most = hasKey ? all.reduce((sum, count) => sum + count, 0) : Math.max(...all)
  if (most > 1) return 'an append is stored twice'
  for (const [at, { answer, version }] of clients.entries()) {
    if (answer === 'refused' && all[at]! > 0)
      return `client ${at + 1} has the answer that it is refused, and it is stored`
    const isOwn = idsOf(at).includes(log[version - 1] ?? 0)
    const isRepeat = hasKey && key !== 0 && log[version - 1] === key
    if (answer === 'stored' && !isOwn && !isRepeat)
      return `client ${at + 1} has the answer that it is stored, and it is not`
  }
  return undefined
}

/** The append of a client, as far as its outcome depends on it. */
function appendOf({ expected, hasKey }: AppendBounds): Append {
  return { parts: [{ expected }], key: hasKey ? 'order-1' : undefined, onRepeat: 'return' } as unknown as Append
}

function clientActions(at: number, bounds: AppendBounds, mutant: AppendMutant | undefined): Action<AppendState>[] {
  const name = `client ${at + 1}`
  const own = ({ clients }: AppendState): Client => clients[at]!
  const isWaiting = (state: AppendState): boolean => own(state).answer === 'none' && own(state).hasBegun
  const send = (state: AppendState, isAgain: boolean): void => {
    const id = idsOf(at)[isAgain && mutant === 'an append that is sent again has new ids' ? 1 : 0]
    const checksIds = isAgain && mutant !== 'an append that is sent again does not check its ids'
    const number = bounds.resends - own(state).resends + 1
    state.calls.push({
      ...{ client: at, number, id, isAwaited: true, checksIds },
      ...{ at: 'sent', hasNewKey: false, kind: 'busy', version: 0 },
    })
  }
  const abandon = ({ calls }: AppendState): void => {
    for (const call of calls) if (call.client === at) call.isAwaited = false
  }
  return [
    {
      name: `${name} sends its append`,
      can: state => !own(state).hasBegun,
      run: state => {
        own(state).hasBegun = true
        send(state, false)
      },
    },
    {
      name: `${name} loses its connection, and sends its append again`,
      can: state => isWaiting(state) && own(state).resends > 0,
      run: state => {
        const client = own(state)
        client.resends--
        client.isUnanswered = true
        abandon(state)
        if (mutant === 'a lost connection counts as a failure') client.answer = 'refused'
        else if (mutant === 'after a lost connection the ids are only looked up') {
          client.version = state.log.indexOf(idsOf(at)[0]) + 1
          client.answer = client.version > 0 ? 'stored' : 'refused'
        } else send(state, true)
      },
    },
    {
      name: `${name} gives up: its outcome is unknown`,
      can: state => isWaiting(state) && bounds.resends > 0 && own(state).resends === 0,
      run: state => {
        abandon(state)
        own(state).answer = 'unknown'
      },
    },
  ]
}

function callActions(
  client: number,
  number: number,
  bounds: AppendBounds,
  mutant: AppendMutant | undefined,
): Action<AppendState>[] {
  const { hasKey, expected } = bounds
  const name = (what: string): string => `call ${number} of client ${client + 1} ${what}`
  const isKeyHeld = mutant !== 'a key is looked up, and stored with the events'
  const looksFirst = mutant === 'ids are checked before the stream is locked'
  const ready = looksFirst ? 'looked' : hasKey ? 'keyed' : 'sent'
  const own = ({ calls }: AppendState): Call | undefined =>
    calls.find(call => call.client === client && call.number === number)
  const end = (state: AppendState): void => {
    state.calls = state.calls.filter(call => call !== own(state))
  }
  return [
    {
      name: name('takes its key'),
      can: state =>
        hasKey && own(state)?.at === 'sent' && (!isKeyHeld || state.calls.every(call => call.at === 'sent')),
      run: state => {
        const call = own(state)!
        call.at = 'keyed'
        call.hasNewKey = state.key === 0
        if (state.key !== 0 && state.key !== call.id) call.kind = 'repeated'
      },
    },
    {
      name: name('looks for its id'),
      can: state => looksFirst && own(state)?.at === 'sent',
      run: state => {
        const call = own(state)!
        call.at = 'looked'
        if (call.checksIds && state.log.includes(call.id)) call.kind = 'stored'
      },
    },
    {
      name: name('locks the stream and decides'),
      can: state => own(state)?.at === ready && isStreamFree(state),
      run: state => decide(state, own(state)!),
    },
    {
      name: name('commits'),
      can: state => own(state)?.at === 'decided',
      run: state => {
        const call = own(state)!
        commit(state, call)
        end(state)
        if (call.isAwaited) tell(state, call)
      },
    },
    {
      name: name('is cut off, and rolled back'),
      can: state => own(state)?.isAwaited === false,
      run: end,
    },
  ]

  /** With the stream locked: ids, then versions, then the insert, which fails if an id is stored. */
  function decide(state: AppendState, call: Call): void {
    const { log, isArchived } = state
    const version = log.length
    const isStored = log.includes(call.id)
    call.at = 'decided'
    call.version = version
    if (call.kind !== 'busy') return
    if (call.checksIds && !looksFirst && isStored) call.kind = 'stored'
    else if (isArchived) call.kind = 'archived'
    else if (!isExpected(version, expected)) call.kind = 'conflict'
    else if (isStored && mutant !== 'ids are not unique') {
      // A unique violation: the transaction is rolled back, and a client that waits sends again with its ids to be checked.
      if (call.isAwaited) Object.assign(call, { at: 'sent', checksIds: true, hasNewKey: false })
      else end(state)
    } else call.kind = 'appended'
  }

  function commit(state: AppendState, { id, kind, hasNewKey }: Call): void {
    if (kind === 'appended') state.log.push(id)
    const keepsKey = kind === 'appended' || kind === 'stored' || mutant === 'a refused append leaves its key'
    if (keepsKey && hasNewKey && state.key === 0) state.key = id
  }

  /** As `appendGrouped` does. */
  function tell({ clients, log, key }: AppendState, { id, kind, version }: Call): void {
    const caller = clients[client]!
    const outcome: Outcome = { kind, failedPart: 0, versions: [version], positions: [] }
    const append = appendOf(bounds)
    const isFinal = mutant === 'a refusal of an append that was sent again is final'
    const repeated = repeatedBy(append, outcome, caller.isUnanswered)
    if (caller.isUnanswered && !isFinal && mayStillBeStored(append, outcome)) caller.answer = 'unknown'
    else if (kind === 'appended' || repeated !== undefined) {
      caller.answer = 'stored'
      caller.version = kind === 'appended' ? log.length : log.indexOf(repeated === 'key' ? key : id) + 1
    } else caller.answer = 'refused'
  }
}

function isStreamFree({ calls }: AppendState): boolean {
  return calls.every(call => call.at !== 'decided')
}

function otherActions(): Action<AppendState>[] {
  return [
    {
      name: 'another process appends to the stream',
      can: state => state.others > 0 && !state.isArchived && isStreamFree(state),
      run: state => {
        state.others--
        state.log.push(ofOthers)
      },
    },
    {
      name: 'the stream is archived',
      can: state => state.archivings > 0 && !state.isArchived && isStreamFree(state),
      run: state => {
        state.archivings--
        state.isArchived = true
      },
    },
    {
      name: 'the stream is restored',
      can: state => state.isArchived && isStreamFree(state),
      run: state => {
        state.isArchived = false
      },
    },
  ]
}
