/**
 * Dead letters: events that failed for good, stored so that the consumer or handler can continue without them.
 *
 *     open ──retry──► retrying ──► replayed         retrying ──► open            it failed again, or its process ended
 *     open ──resolve (with a note)──► resolved      replayed, resolved ──► open  the event failed again
 *     parked ──► open                               the earlier one of its stream that held it back is closed
 *
 * An operator lists them, requests retries, resolves and deletes them (`store.deadLetters`). A retry is a request: the
 * runner that serves the consumer or handler carries it out, and with none the dead letter stays open. Those of consumers
 * are retried under the consumer's lease; those of handlers by an execution.
 *
 *     row.ts     every write     dead-letter.ts  reads them            owner.ts  whose dead letters are meant
 *     retry.ts   requests        replay.ts       carries out those of consumers    parked.ts  holds back a stream
 *
 * Guarantees: one dead letter per consumer and event. An event is never applied by a retry without its dead letter
 * being closed, nor the other way round. What can fail: a change in a state that does not allow it
 * (`DeadLetterConflict`), or of a dead letter that does not exist (`DeadLetterNotFound`).
 */

import { InvalidOption } from '../../core/errors.ts'
import { nearestName, textFault } from '../../core/name.ts'
import { refuseUnknownOptions, refusingUnknownOptions } from '../../core/options.ts'
import type { Page, PageOptions } from '../../core/page.ts'
import { type Statement, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { DeadLetterConflict, DeadLetterNotFound, RetryPending } from '../errors.ts'
import { consumerNames } from '../schema.ts'
import {
  type DeadLetter,
  type DeadLetterDetails,
  type DeadLetterFilter,
  filterNames,
  type ListDeadLettersOptions,
  listDeadLetters,
  matches,
  showDeadLetter,
} from './dead-letter.ts'
import { type DeadLetterGroup, type GroupDeadLettersOptions, groupDeadLetters } from './groups.ts'
import { type DeadLetterOwner, handlerOfRow, isHandlerRow, ownerName, ownerOfRow, rowOf, rowsOf } from './owner.ts'
import { openNext } from './parked.ts'
import {
  checkRate,
  type DeadLetterKind,
  defaultPerSecond,
  editedData,
  ofConsumers,
  type RetryFilter,
  type RetryRequest,
  reopenLeft,
  requestMatching,
  requestRetry,
} from './retry.ts'
import { remove, resolve, resolveMatching, type DeadLetterState as State } from './row.ts'
import { countDeadLetters, type DeadLetterStats } from './stats.ts'

/** `of` is a definition or a name; `{ consumer }` or `{ handler }` if both have the name. */
export interface DeadLetters {
  /** A page of them, by owner and position. */
  list(options?: ListDeadLettersOptions): Promise<Page<DeadLetter>>
  /** Failures that are alike together, the largest group first, among the latest 10 000. */
  groups(options?: GroupDeadLettersOptions): Promise<Page<DeadLetterGroup>>
  /** How many there are in each state, for each consumer and handler that has any. */
  stats(options?: PageOptions): Promise<Page<DeadLetterStats>>
  /** One with its event as stored, its errors and its history. */
  show(of: DeadLetterOwner, eventId: string): Promise<DeadLetterDetails>
  /** Requests a retry of one that is open. A handler can be given other data than the event has. */
  retry(of: DeadLetterOwner, eventId: string, options?: { data?: unknown }): Promise<RetryRequest>
  /** Requests retries of all open ones that match, at most `perSecond` (default 50) of them. */
  retryAll(filter?: RetryFilter, options?: { perSecond?: number | undefined }): Promise<RetryRequest>
  /**
   * Closes an open or parked one without applying its event. The note says why. If it held back its stream, the next
   * event of that is retried.
   */
  resolve(of: DeadLetterOwner, eventId: string, options: { note: string }): Promise<void>
  /** Closes all open ones that match, at most 10 000 at once, without applying their events. */
  resolveAll(filter: DeadLetterFilter, options: { note: string }): Promise<{ readonly resolved: number }>
  delete(of: DeadLetterOwner, eventId: string): Promise<void>
}

export interface DeadLetterParts {
  readonly log: Log
  /** How those of handlers are retried. */
  readonly handlers?: DeadLetterKind | undefined
  /** Called when a retry was requested, so that a runner of this process need not wait until it looks the next time. */
  readonly onRequest?: (() => void) | undefined
}

export function openDeadLetters({ log, handlers, onRequest }: DeadLetterParts): DeadLetters {
  const consumers = ofConsumers(log)
  const kinds = handlers === undefined ? [consumers] : [consumers, handlers]
  const kindOf = (row: string): DeadLetterKind => (isHandlerRow(row) ? handlers : undefined) ?? consumers
  const isServed = (row: string): Promise<boolean | undefined> =>
    kindOf(row).isServed(isHandlerRow(row) ? handlerOfRow(row) : row)

  /** Changes one in a state that allows it, or says why it was not: the statement returns a row if it changed it. */
  async function change(
    { of, eventId, wanted }: OneChange,
    statementOf: (kind: DeadLetterKind, row: string, id: string) => Statement | Promise<Statement>,
  ): Promise<string> {
    const { row, id } = await rowOf(log, of, eventId)
    const kind = kindOf(row)
    const statement = await statementOf(kind, row, id)
    const isChanged = async (): Promise<boolean> =>
      wanted === 'retried' ? (await log.database.run(statement)).length > 0 : (await closing(statement)).length > 0
    if (await isChanged()) return row
    if ((await reopenLeft(log, kind, row, id)) && (await isChanged())) return row
    throw await reasonOf(kind, row, id, { of, eventId, wanted })
  }

  /** Closes some. Those that they have held back are the next to be tried, in the same transaction. */
  async function closing(statement: Statement): Promise<{ consumer: string; stream: string }[]> {
    const closed = await log.database.transaction(async tx => {
      const rows = await tx.run<{ consumer: string; stream: string }>(statement)
      const ofConsumer = rows.filter(row => !isHandlerRow(row.consumer))
      if (ofConsumer.length > 0) await tx.run(openNext(log, ofConsumer))
      return rows
    })
    if (closed.length > 0) onRequest?.()
    return closed
  }

  async function reasonOf(kind: DeadLetterKind, row: string, id: string, { of, eventId, wanted }: OneChange) {
    const name = ownerName(of)
    const [found] = await log.database.run<{ state: State; correlation_id: string | null }>(sql`/* dead_letters.state */
      select state, correlation_id
      from ${consumerNames(log).dead_letters}
      where consumer = ${row}::text
        and event_id = ${id}::uuid`)
    if (found === undefined) return new DeadLetterNotFound({ of: name, eventId })
    const { state, correlation_id: correlationId } = found
    if (wanted !== 'retried' || state !== 'open') return new DeadLetterConflict({ of: name, eventId, state, wanted })
    const reason = correlationId === null ? undefined : await kind.whyNot(correlationId)
    return reason ?? new RetryPending({ of: name, eventId })
  }

  const deadLetters: DeadLetters = {
    list: async (options = {}) => listDeadLetters(log, options),
    groups: async (options = {}) => groupDeadLetters(log, options),
    stats: async (options = {}) => countDeadLetters(log, options),
    show: async (of, eventId) => showDeadLetter(log, of, eventId),
    async retry(of, eventId, options = {}) {
      const row = await change({ of, eventId, wanted: 'retried' }, async (kind, row, id) => {
        if (!('data' in options)) return requestRetry(log, kind, row, id)
        if (!kind.takesData)
          throw new InvalidOption({
            option: 'data',
            reason: `A consumer applies its events as they are stored, so a dead letter of "${row}" cannot be retried with other data. Only handlers can.`,
          })
        const { type } = await showDeadLetter(log, ownerOfRow(row), id)
        return requestRetry(log, kind, row, id, await editedData(log, type, options.data))
      })
      const isRunning = (await isServed(row)) ?? false
      onRequest?.()
      return { requested: 1, isRunning }
    },
    async retryAll(given = {}, options = {}) {
      refuseUnknownOptions('store.deadLetters.retryAll', given, [...filterNames, 'limit'])
      refuseUnknownOptions('store.deadLetters.retryAll', options, ['perSecond'])
      const { of, ...filter } = given
      const { perSecond = defaultPerSecond } = options
      checkRate(perSecond)
      const owners = of === undefined ? undefined : await rowsOf(log, of)
      const requested = await requestMatching(log, kinds, owners, filter, perSecond)
      if (requested.length > 0) onRequest?.()
      const rows = requested.length > 0 ? [...new Set(requested)] : (owners ?? [])
      const served = (await Promise.all(rows.map(isServed))).filter(each => each !== undefined)
      if (of !== undefined && requested.length === 0 && served.length === 0) await refuseUnknown(log, kinds, of, rows)
      return {
        requested: requested.length,
        isRunning: (of === undefined || served.length > 0) && served.every(Boolean),
      }
    },
    async resolve(of, eventId, { note }) {
      checkNote(note)
      await change({ of, eventId, wanted: 'resolved' }, (_, row, id) => resolve(log, row, id, note))
    },
    async resolveAll({ of, ...filter }, { note }) {
      checkNote(note)
      refuseUnknownOptions('store.deadLetters.resolveAll', filter, filterNames)
      const owners = of === undefined ? null : await rowsOf(log, of)
      const rows = await closing(resolveMatching(log, matches(filter, owners), note, maxResolved))
      return { resolved: rows.length }
    },
    async delete(of, eventId) {
      await change({ of, eventId, wanted: 'deleted' }, (_, row, id) => remove(log, row, id))
    },
  }
  return refusingUnknownOptions('store.deadLetters', deadLetters, { retry: [2, ['data']], resolve: [2, ['note']] })
}

interface OneChange {
  readonly of: DeadLetterOwner
  readonly eventId: string
  /** The change, as the error names it. */
  readonly wanted: 'retried' | 'resolved' | 'deleted'
}

const maxNote = 4_000
const maxResolved = 10_000

function checkNote(note: string): void {
  const fault = typeof note !== 'string' || note.trim() === '' ? 'is empty' : textFault(note)
  if (fault !== undefined)
    throw new InvalidOption({
      option: 'note',
      reason: `The note ${fault}. It must say why the dead letter is resolved.`,
    })
  if (note.length > maxNote)
    throw new InvalidOption({
      option: 'note',
      reason: `The note is too long. It may have at most ${maxNote} characters.`,
    })
}

/** Refuses a name that neither a consumer nor a handler nor a dead letter has. */
async function refuseUnknown(
  log: Log,
  kinds: readonly DeadLetterKind[],
  of: DeadLetterOwner,
  rows: readonly string[],
): Promise<void> {
  const left = await log.database.runArrays(sql`/* dead_letters.any */
    select 1
    from ${consumerNames(log).dead_letters}
    where consumer = any(${rows}::text[])
    limit 1`)
  if (left.length > 0) return
  const isOfHandlers = rows.every(isHandlerRow)
  const asked = isOfHandlers ? kinds.slice(1) : kinds
  const names = (await Promise.all(asked.map(kind => kind.names()))).flat()
  const name = ownerName(of)
  const [kind] = asked
  throw kind!.notFound(name, nearestName(name, names))
}
