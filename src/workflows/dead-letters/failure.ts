/**
 * The end of an execution that has failed for good: its dead letter, the event that `onFailure` tells of it with, and the
 * lane behind it, in the transaction that ends it.
 *
 * `onFailure` is called before that transaction, once for each time the execution is set aside. Whatever goes wrong with it,
 * when it is called or when what it returns is stored, is noted at the letter; it never keeps the letter from being there.
 */
import { describeError, isInterruption } from '../../consumers/run/failure.ts'
import { abortable, deadline } from '../../core/lifecycle.ts'
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { cancelIn } from '../cancel/cancel.ts'
import { undoFailed } from '../cancel/compensate.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import { type ReadResult, readResult } from '../emit.ts'
import { type Emitted, prepareEmitted } from '../emitted.ts'
import { InvalidResult } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { placeOf } from '../joins/joined.ts'
import type { Claimed } from '../work/claim.ts'
import { parkLane } from '../work/lanes.ts'
import type { Outcome } from '../work/outcome.ts'
import { countFailures, type DeadLetterReason, recordLetter } from './letters.ts'

export interface Terminal {
  readonly execution: Claimed
  readonly handler: Handler
  readonly error: unknown
  readonly reason: DeadLetterReason
}

type SetAside = Pick<Outcome, 'kind' | 'told' | 'detail' | 'error' | 'emitted' | 'inside' | 'instead' | 'compensates'>

/** How long `onFailure` may take. Until then the execution is not ended, and nobody else takes it for lost. */
const longestMs = 5_000

export async function setAside(parts: DispatchParts, terminal: Terminal): Promise<SetAside> {
  const plain = (onFailure?: string): SetAside => ({
    ...{ kind: 'done', told: 'failed', detail: terminal.reason, error: describeError(terminal.error) },
    inside: tx => record(parts, tx, terminal, onFailure),
  })
  try {
    const told = await tell(parts, terminal)
    if (told === undefined) return plain()
    const { work, emitted } = told
    return {
      ...plain(),
      emitted,
      inside: async tx => {
        await record(parts, tx, terminal)
        await work?.(tx)
      },
      instead: error => plain(noted(parts, terminal, error)),
    }
  } catch (error) {
    // Of the handler's own making, if our database answers: it would be run again and again for what only tells of it.
    if (isInterruption(error) && !(await answers(parts))) throw error
    return plain(noted(parts, terminal, error))
  }
}

function answers({ log }: DispatchParts): Promise<boolean> {
  return log.database
    .run(sql`/* workflows.answers */
      select`)
    .then(
      () => true,
      () => false,
    )
}

async function record({ log }: DispatchParts, tx: Transaction, terminal: Terminal, onFailure?: string): Promise<void> {
  const { execution, handler, error, reason } = terminal
  await recordLetter(log, tx, { execution, handler: handler.name, error, reason, onFailure })
  // Without its event there is no letter, and nothing a person could decide.
  if (handler.definition.onDead === 'park' && execution.event !== undefined) await parkLane(log, tx, execution)
  if (execution.undoId !== undefined) await undoFailed(log, tx, execution)
  if (handler.onFailure !== 'compensate') return
  const why = `${handler.name} has failed: ${describeError(error).message}`
  await cancelIn(log, tx, execution.correlationId, { reason: why, compensate: true, except: execution.id })
}

interface Told {
  readonly work: ReadResult['work']
  readonly emitted: Emitted | undefined
}

/** Undefined if nothing is to be told. */
async function tell(parts: DispatchParts, terminal: Terminal): Promise<Told | undefined> {
  const { log, limits } = parts
  const { handler, error, reason, execution } = terminal
  const { event, attempt: attempts } = execution
  const { name, onFailure } = handler
  if (typeof onFailure !== 'function' || event === undefined) return undefined
  const limit = deadline(undefined, longestMs, { what: `The end of onFailure of "${name}"`, clock: log.clock })
  let result: unknown
  try {
    const telling = (async () => onFailure({ error, reason, attempts }, event))()
    result = await abortable(telling, limit.signal)
  } finally {
    limit.dispose()
  }
  const read = readResult(result)
  if ('reason' in read) throw new InvalidResult({ handler: name, reason: `its onFailure: ${read.reason}` })
  const failure = await countFailures(log, name, event.id)
  const emitter = { handler: name, event, failure, ...placeOf(execution) }
  return { work: read.work, emitted: await prepareEmitted(log, emitter, read.emitted, limits) }
}

function noted({ log }: DispatchParts, { handler, execution }: Terminal, error: unknown): string {
  const { name, message } = describeError(error)
  log.telemetry.log.warn(
    { schema: log.schema, handler: handler.name, executionId: execution.id, error },
    'a failure could not be told of',
  )
  return `${name}: ${message}`
}
