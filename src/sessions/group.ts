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
import { coalesce } from '../core/coalesce.ts'
import { isRillflowError, StoreClosed } from '../core/errors.ts'
import { OutcomeUnknown } from '../database/errors.ts'
import { sqlStateOf } from '../database/sqlstate.ts'
import { isNeverSent } from '../events/append/group-commit.ts'
import type { Log } from '../events/log.ts'
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

const maxQueued = 10_000
const maxGroupBytes = 4 * 1024 * 1024

export function saveGroup(log: Log): SaveGroup {
  const { database } = log
  const saves = coalesce<Joint, JointOutcome | Alone>({
    name: 'save',
    send,
    afterFailure: error => (isRillflowError(error, 'store_closed') ? 'fail' : 'split'),
    sizeOf: save => ({ count: save.append.eventCount + documentsOf(save).length, bytes: save.append.bytes }),
    keysOf: save => [...save.append.parts.map(({ stream }) => `stream\0${stream}`), ...documentsOf(save)],
    fits(save, batch) {
      const own = new Set(documentsOf(save))
      return (
        shapeOf(save.places) === shapeOf(batch[0]!.places) &&
        !batch.some(other => documentsOf(other).some(document => own.has(document)))
      )
    },
    maxBatch: { count: database.batch.appendEvents, bytes: maxGroupBytes },
    maxQueued: { count: maxQueued, bytes: Number.POSITIVE_INFINITY },
  })
  return { submit: save => saves.submit(save), drain: () => saves.close(new StoreClosed({})) }

  async function send(given: readonly Joint[]): Promise<(JointOutcome | Alone | Promise<Alone>)[]> {
    try {
      const isLone = given.length === 1 && given[0]!.append.parts.length <= 1
      const outcomes = isLone ? [await sendLone(database, log, given[0]!)] : await sendJoint(database, log, given)
      log.telemetry.count('session_save_groups_total')
      return given.map((save, at) => settled(save, outcomes[at]!))
    } catch (error) {
      if (isRillflowError(error, 'connection_lost') || isRillflowError(error, 'outcome_unknown'))
        return given.map(save => unanswered(save, error))
      if (isRillflowError(error, 'store_closed')) throw error
      if (given.length === 1) return [alone]
      if (sqlStateOf((error as Error).cause) === documentRefused) return sendOthers(given, error as Error)
      throw error
    }
  }

  async function sendOthers(given: readonly Joint[], error: Error): Promise<(JointOutcome | Alone | Promise<Alone>)[]> {
    const refused = new Set(
      String((error.cause as { detail?: string }).detail)
        .split(',')
        .map(Number),
    )
    const others = given.filter((_, at) => !refused.has(at + 1))
    if (others.length === given.length) return given.map(() => alone)
    const outcomes = others.length === 0 ? [] : await send(others)
    return given.map((_, at) => (refused.has(at + 1) ? alone : outcomes.shift()!))
  }

  function settled(save: Joint, answer: JointOutcome): JointOutcome | Alone {
    const { kind } = answer.outcome
    if (kind === 'inline') log.inline.learn(save.append, true)
    return kind === 'inline' || kind === 'busy' ? alone : answer
  }

  function unanswered(save: Joint, error: Error): Alone | Promise<Alone> {
    const isUnanswered = !isNeverSent(error.cause)
    if (!isUnanswered || save.append.eventCount > 0) return { outcome: undefined, isUnanswered }
    return Promise.reject(new OutcomeUnknown({ eventIds: [], reason: `no answer came (${error.message})` }, error))
  }
}

function documentsOf(save: Joint): string[] {
  return save.places.flatMap(({ collection }, at) =>
    save.changes[at]!.map(({ id }) => `${collection.tableName}\0${id}`),
  )
}

const alone: Alone = { outcome: undefined, isUnanswered: false }

/** Raised by `save_store`; its detail names the saves, from 1. */
const documentRefused = 'RF003'
