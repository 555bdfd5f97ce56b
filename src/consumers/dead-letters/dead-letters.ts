/**
 * What operators do with dead letters: look, ask for a retry, resolve, delete.
 *
 * A retry is a request. It is carried out by whoever holds the consumer's lease, so that it never runs beside the
 * consumer's own batches; with nobody holding it the letter stays open until somebody does. Letters of handlers are here too,
 * as those of the consumer `handler:<name>`; their retry is an execution, which any worker with that handler runs.
 */

import { InvalidOption } from '../../core/errors.ts'
import { textFault } from '../../core/name.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { consumerNames } from '../schema.ts'
import { changeLetter } from './change.ts'
import { keptEntries, type DeadLetterState as State } from './dead-letter.ts'
import {
  type DeadLetter,
  type DeadLetterDetails,
  type ListDeadLettersOptions,
  listDeadLetters,
  showDeadLetter,
} from './list.ts'
import {
  checkRate,
  defaultPerSecond,
  isServed,
  type RetryFilter,
  type RetryRequest,
  requestMatching,
  requestRetry,
} from './retry.ts'

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
  /** Asks for one open letter, or for all that match, at most `perSecond` (default 50) of them. */
  retry(
    consumer: string,
    which: string | RetryFilter,
    options?: { perSecond?: number | undefined },
  ): Promise<RetryRequest>
  /** Closes an open letter without applying its event. */
  resolve(consumer: string, eventId: string, note: string): Promise<void>
  delete(consumer: string, eventId: string): Promise<void>
}

export interface DeadLetterParts {
  readonly log: Log
  /** Called when a retry was asked for, so that a daemon of this process need not wait for its next look. */
  readonly onRequest?: ((consumer: string) => void) | undefined
}

export function openDeadLetters({ log, onRequest }: DeadLetterParts): DeadLetters {
  return {
    list: async (options = {}) => listDeadLetters(log, options),
    stats: () => countLetters(log),
    show: async (consumer, eventId) => showDeadLetter(log, consumer, eventId),
    async retry(consumer, which, { perSecond = defaultPerSecond } = {}) {
      checkRate(perSecond)
      let requested = 1
      if (typeof which === 'string') await requestRetry(log, consumer, which)
      else requested = await requestMatching(log, consumer, which, perSecond)
      const isRunning = await isServed(log, consumer, requested)
      if (requested > 0) onRequest?.(consumer)
      return { requested, isRunning }
    },
    resolve: (consumer, eventId, note) => resolveLetter(log, consumer, eventId, note),
    delete: (consumer, eventId) => deleteLetter(log, consumer, eventId),
  }
}

async function countLetters(log: Log): Promise<DeadLetterStats[]> {
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

export async function resolveLetter(log: Log, consumer: string, eventId: string, note: string): Promise<void> {
  const fault = typeof note !== 'string' || note.trim() === '' ? 'must say why it is resolved' : textFault(note)
  if (fault !== undefined) throw new InvalidOption({ option: 'note', reason: fault })
  if (note.length > longestNote)
    throw new InvalidOption({ option: 'note', reason: `must have at most ${longestNote} characters` })
  await changeLetter(
    log,
    { consumer, eventId, wanted: 'resolved' },
    id => sql`/* dead_letters.resolve */
      update ${consumerNames(log).dead_letters}
      set state = 'resolved',
        retry_at = null,
        note = ${note}::text,
        history = case when jsonb_array_length(history) < ${keptEntries}::integer then history else history - 0 end
          || jsonb_build_array(jsonb_build_object(
            'at', ${log.names.clock}(last_failed_at), 'from', 'open', 'to', 'resolved', 'note', ${note}::text))
      where consumer = ${consumer}::text
        and event_id = ${id}::uuid
        and state = 'open'
      returning event_id`,
  )
}

const longestNote = 4_000

/** One that is being tried right now stays: its outcome has to be written somewhere. */
async function deleteLetter(log: Log, consumer: string, eventId: string): Promise<void> {
  await changeLetter(
    log,
    { consumer, eventId, wanted: 'deleted' },
    id => sql`/* dead_letters.delete */
      delete from ${consumerNames(log).dead_letters}
      where consumer = ${consumer}::text
        and event_id = ${id}::uuid
        and state <> 'retrying'
      returning event_id`,
  )
}
