/**
 * Dead letters: events that failed for good, kept so that the consumer or handler can continue without them.
 *
 *     open ──retry──► retrying ──► replayed         retrying ──► open            it failed again, or its process is gone
 *     open ──resolve (with a note)──► resolved      replayed, resolved ──► open  the event failed again
 *
 * An operator lists them, requests retries, resolves and deletes them (`store.deadLetters`). A retry is a request: the
 * runner that serves the consumer carries it out, and with none the dead letter stays open. Those of consumers are
 * retried under the consumer's lease; those of handlers by an execution.
 *
 *     row.ts          every write        dead-letter.ts  what is read
 *     retry.ts        requests           replay.ts       carries out those of consumers
 *
 * Guarantees: one dead letter per consumer and event. An event is never applied by a retry without its dead letter
 * being closed, nor the other way round. What can fail: a change in a state that does not allow it
 * (`DeadLetterConflict`), or of a dead letter that is not there (`DeadLetterNotFound`).
 */
import { InvalidOption } from '../../core/errors.ts'
import { canonicalUuid } from '../../core/id.ts'
import { textFault } from '../../core/name.ts'
import { nearestName } from '../../core/nearest.ts'
import { type Statement, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { ConsumerNotFound, DeadLetterConflict, DeadLetterNotFound, RetryPending } from '../errors.ts'
import { consumerNames } from '../schema.ts'
import {
  type DeadLetter,
  type DeadLetterDetails,
  type ListDeadLettersOptions,
  listDeadLetters,
  showDeadLetter,
} from './dead-letter.ts'
import {
  checkRate,
  type DeadLetterKind,
  defaultPerSecond,
  type EditedData,
  ofConsumers,
  type RetryFilter,
  type RetryRequest,
  reopenLeft,
  requestMatching,
  requestRetry,
} from './retry.ts'
import { remove, resolve, type DeadLetterState as State } from './row.ts'

export interface DeadLetterStats extends Readonly<Record<State, number>> {
  readonly consumer: string
}

export interface DeadLetters {
  /** A page of them, by consumer and position. */
  list(options?: ListDeadLettersOptions): Promise<DeadLetter[]>
  /** How many there are in each state, for each consumer that has any. */
  stats(): Promise<DeadLetterStats[]>
  /** One with its event as stored, its errors and its history. */
  show(consumer: string, eventId: string): Promise<DeadLetterDetails>
  /** Requests a retry of one that is open, or of all that match, at most `perSecond` (default 50) of them. */
  retry(
    consumer: string,
    which: string | RetryFilter,
    options?: { perSecond?: number | undefined },
  ): Promise<RetryRequest>
  /** Closes an open one without applying its event. */
  resolve(consumer: string, eventId: string, note: string): Promise<void>
  delete(consumer: string, eventId: string): Promise<void>
}

export interface DeadLetterParts {
  readonly log: Log
  /** Those that are not retried under the lease of a consumer. */
  readonly kinds?: readonly DeadLetterKind[] | undefined
  /** Called when a retry was requested, so that a runner of this process need not wait for its next look. */
  readonly onRequest?: ((consumer: string) => void) | undefined
}

export function openDeadLetters({ log, kinds = [], onRequest }: DeadLetterParts): DeadLetters {
  const own = ofConsumers(log)
  const all = [own, ...kinds]
  const kindOf = (consumer: string): DeadLetterKind => kinds.find(({ prefix }) => consumer.startsWith(prefix)) ?? own
  return {
    list: async (options = {}) => listDeadLetters(log, options),
    stats: () => countDeadLetters(log),
    show: async (consumer, eventId) => showDeadLetter(log, consumer, eventId),
    async retry(consumer, which, { perSecond = defaultPerSecond } = {}) {
      checkRate(perSecond)
      const kind = kindOf(consumer)
      let requested = 1
      if (typeof which === 'string') await retryOne(log, kind, consumer, which)
      else requested = await requestMatching(log, kind, consumer, which, perSecond)
      const isRunning = await kind.isServed(consumer)
      if (isRunning === undefined && requested === 0) await refuseUnknown(log, all, consumer)
      if (requested > 0) onRequest?.(consumer)
      return { requested, isRunning: isRunning ?? false }
    },
    resolve: (consumer, eventId, note) => resolveOne(log, kindOf(consumer), consumer, eventId, note),
    delete: (consumer, eventId) =>
      changeOne(log, kindOf(consumer), { consumer, eventId, wanted: 'deleted' }, id => remove(log, consumer, id)),
  }
}

export async function retryOne(
  log: Log,
  kind: DeadLetterKind,
  consumer: string,
  eventId: string,
  edited?: EditedData,
): Promise<void> {
  await changeOne(log, kind, { consumer, eventId, wanted: 'retried' }, id =>
    requestRetry(log, kind, consumer, id, edited),
  )
}

export async function resolveOne(
  log: Log,
  kind: DeadLetterKind,
  consumer: string,
  eventId: string,
  note: string,
): Promise<void> {
  const fault = typeof note !== 'string' || note.trim() === '' ? 'must say why it is resolved' : textFault(note)
  if (fault !== undefined) throw new InvalidOption({ option: 'note', reason: fault })
  if (note.length > maxNote)
    throw new InvalidOption({ option: 'note', reason: `must have at most ${maxNote} characters` })
  await changeOne(log, kind, { consumer, eventId, wanted: 'resolved' }, id => resolve(log, consumer, id, note))
}

const maxNote = 4_000

interface OneChange {
  readonly consumer: string
  readonly eventId: string
  /** What is to be done to it, as the error says it. */
  readonly wanted: 'retried' | 'resolved' | 'deleted'
}

/** Changes one in a state that allows it, or says why it was not: the statement returns a row if it changed it. */
async function changeOne(
  log: Log,
  kind: DeadLetterKind,
  { consumer, eventId, wanted }: OneChange,
  statement: (id: string) => Statement,
): Promise<void> {
  const id = canonicalUuid(eventId)
  if (id === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  const change = async (): Promise<boolean> => (await log.database.run(statement(id))).length > 0
  if (await change()) return
  if ((await reopenLeft(log, kind, consumer, id)) && (await change())) return
  const [row] = await log.database.run<{ state: State; correlation_id: string | null }>(sql`/* dead_letters.state */
    select state, correlation_id
    from ${consumerNames(log).dead_letters}
    where consumer = ${consumer}::text
      and event_id = ${id}::uuid`)
  if (row === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  const { state, correlation_id: correlationId } = row
  if (wanted !== 'retried' || state !== 'open') throw new DeadLetterConflict({ consumer, eventId, state, wanted })
  const reason = correlationId === null ? undefined : await kind.whyNot(correlationId)
  throw reason ?? new RetryPending({ consumer, eventId })
}

async function countDeadLetters(log: Log): Promise<DeadLetterStats[]> {
  const rows = await log.database.run<Record<State, number> & { consumer: string }>(sql`/* dead_letters.stats */
    select consumer,
      count(*) filter (where state = 'open') as open,
      count(*) filter (where state = 'retrying') as retrying,
      count(*) filter (where state = 'replayed') as replayed,
      count(*) filter (where state = 'resolved') as resolved
    from ${consumerNames(log).dead_letters}
    group by consumer
    order by consumer`)
  return rows.map(({ consumer, open, retrying, replayed, resolved }) => ({
    consumer,
    open: Number(open),
    retrying: Number(retrying),
    replayed: Number(replayed),
    resolved: Number(resolved),
  }))
}

/** A name that neither a consumer nor a dead letter has. */
async function refuseUnknown(log: Log, kinds: readonly DeadLetterKind[], consumer: string): Promise<void> {
  const left = await log.database.runArrays(sql`/* dead_letters.any */
    select 1
    from ${consumerNames(log).dead_letters}
    where consumer = ${consumer}::text
    limit 1`)
  if (left.length > 0) return
  const names = (await Promise.all(kinds.map(kind => kind.names()))).flat()
  throw new ConsumerNotFound({ consumer, nearest: nearestName(consumer, names) })
}
