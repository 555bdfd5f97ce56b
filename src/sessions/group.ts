/**
 * Joining concurrent saves of this process into one statement, each with its own outcome.
 *
 *     submit ─► queue ─► one statement under way ─┬─► stored, or refused by the version of a stream
 *               a lone save goes at once          └─► alone: a document was not as expected, something is held
 *                                                     elsewhere, an inline projection wants it, the connection broke
 *
 * What cannot be settled here is given back to go alone, in a transaction of its own that waits for what it needs and says
 * exactly what is wrong. So nothing that happens to one save is another's.
 */
import { isRillflowError, OutcomeUnknown, Overloaded, StoreClosed } from '../core/errors.ts'
import { deferred } from '../core/lifecycle.ts'
import { sqlStateOf } from '../database/sqlstate.ts'
import { runOutside } from '../database/transaction.ts'
import { isNeverSent } from '../events/group-commit.ts'
import type { Log } from '../events/log.ts'
import { busy, meetsInline } from '../events/send.ts'
import { type Joint, type JointOutcome, sendJoint, shapeOf } from './joint.ts'
import { sendLone } from './lone.ts'

export interface SaveGroup {
  submit(save: Joint): Promise<JointOutcome | Alone>
  /** Refuses new saves and waits for those under way. */
  drain(): Promise<void>
}

/** It has to go alone. */
export interface Alone {
  readonly outcome: undefined
  /** Whether it was sent already, and no answer came. */
  readonly isUnanswered: boolean
}

interface Pending {
  readonly save: Joint
  readonly shape: string
  /** Its documents: one that another save of the group has waits for the next. */
  readonly names: readonly string[]
  readonly resolve: (outcome: JointOutcome | Alone) => void
  readonly reject: (error: unknown) => void
}

const maxQueued = 10_000
const maxGroupBytes = 4 * 1024 * 1024

export function saveGroup(log: Log): SaveGroup {
  const { database } = log
  let queue: Pending[] = []
  let isSending = false
  let isScheduled = false
  let closing: ReturnType<typeof deferred<void>> | undefined

  return {
    submit(save) {
      if (closing !== undefined) return Promise.reject(new StoreClosed({}))
      if (queue.length >= maxQueued) return Promise.reject(new Overloaded({ queue: 'save', limit: maxQueued }))
      return new Promise((resolve, reject) => {
        const names = save.places.flatMap(({ collection }, at) =>
          save.changes[at]!.map(({ id }) => `${collection.tableName}\0${id}`),
        )
        queue.push({ save, shape: shapeOf(save.places), names, resolve, reject })
        if (!isScheduled) pump()
      })
    },
    async drain() {
      closing ??= deferred<void>()
      if (!isSending && queue.length === 0) closing.resolve()
      await closing.promise
    },
  }

  function pump(): void {
    isScheduled = false
    if (isSending || queue.length === 0) return
    const group = takeGroup()
    isSending = true
    // The caller may be inside a transaction of another database that ends before this is sent.
    runOutside(() => void dispatch(group))
  }

  async function dispatch(group: readonly Pending[]): Promise<void> {
    await send(group)
    isSending = false
    if (queue.length === 0) closing?.resolve()
    // Those just answered come back within a turn: the next group is theirs together. A lone one need not wait.
    if (group.length === 1 && queue.length === 0) return
    isScheduled = true
    setImmediate(pump)
  }

  /** The oldest save, and those after it that can go in the same statement. */
  function takeGroup(): Pending[] {
    const group: Pending[] = []
    const rest: Pending[] = []
    const taken = new Set<string>()
    const passed = new Set<string>()
    let [size, bytes] = [0, 0]
    for (const pending of queue) {
      const { append } = pending.save
      const streams = append.parts.map(({ stream }) => stream)
      const more = append.eventCount + pending.names.length
      const isFull =
        group.length > 0 && (size + more > database.batch.appendEvents || bytes + append.bytes > maxGroupBytes)
      const isOther = group.length > 0 && pending.shape !== group[0]!.shape
      // One that goes later must not be overtaken by another on its stream.
      const isBehind = streams.some(stream => passed.has(stream)) || pending.names.some(name => taken.has(name))
      if (isFull || isOther || isBehind) {
        for (const stream of streams) passed.add(stream)
        rest.push(pending)
        continue
      }
      group.push(pending)
      size += more
      bytes += append.bytes
      for (const name of pending.names) taken.add(name)
    }
    queue = rest
    return group
  }

  /** Until each has its outcome. Never rejects. */
  async function send(group: readonly Pending[]): Promise<void> {
    try {
      const saves = group.map(({ save }) => save)
      const isLone = saves.length === 1 && saves[0]!.append.parts.length <= 1
      const outcomes = isLone ? [await sendLone(database, log, saves[0]!)] : await sendJoint(database, log, saves)
      log.telemetry.count('session_save_groups_total')
      for (const [at, pending] of group.entries()) settle(pending, outcomes[at]!)
    } catch (error) {
      await afterFailure(group, error as Error)
    }
  }

  async function afterFailure(group: readonly Pending[], error: Error): Promise<void> {
    if (isRillflowError(error, 'store_closed')) {
      for (const { reject } of group) reject(error)
    } else if (isRillflowError(error, 'connection_lost') || isRillflowError(error, 'outcome_unknown')) {
      for (const pending of group) giveBack(pending, error)
    } else if (sqlStateOf(error.cause) === documentRefused) {
      const refused = new Set(
        String((error.cause as { detail?: string }).detail)
          .split(',')
          .map(Number),
      )
      for (const [at, { resolve }] of group.entries()) if (refused.has(at + 1)) resolve(alone)
      const rest = group.filter((_, at) => !refused.has(at + 1))
      // A refusal that names none of them must not be sent for ever.
      if (rest.length === group.length) for (const { resolve } of group) resolve(alone)
      else if (rest.length > 0) await send(rest)
    } else if (group.length === 1) {
      group[0]!.resolve(alone)
    } else {
      const middle = group.length >> 1
      await send(group.slice(0, middle))
      await send(group.slice(middle))
    }
  }

  function settle({ save, resolve }: Pending, answer: JointOutcome): void {
    const { code } = answer.outcome
    if (code === meetsInline) log.inline.learn(save.append, true)
    resolve(code === meetsInline || code === busy ? alone : answer)
  }

  /** Its events are known by their ids when it is sent again; documents alone are not. */
  function giveBack({ save, resolve, reject }: Pending, error: Error): void {
    const isUnanswered = !isNeverSent(error.cause)
    if (!isUnanswered || save.append.eventCount > 0) resolve({ outcome: undefined, isUnanswered })
    else reject(new OutcomeUnknown({ eventIds: [], reason: `no answer came (${error.message})` }, error))
  }
}

const alone: Alone = { outcome: undefined, isUnanswered: false }

/** Raised by `save_store`; its detail names the saves, from 1. */
const documentRefused = 'RF003'
