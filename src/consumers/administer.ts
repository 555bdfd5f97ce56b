/**
 * What an operator does to a consumer's row. The operator wins: each change but a pause draws a new fence, so a batch that
 * is under way is rolled back, and whoever runs the consumer takes its lease anew.
 */

import { nearestName } from '../core/nearest.ts'
import { retry } from '../core/retry.ts'
import { checkWhole, maxPosition } from '../core/whole.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { keptEntries } from './dead-letters/dead-letter.ts'
import { ConsumerNotFound } from './errors.ts'
import { forget, move, pause, resume } from './row.ts'
import { consumerNames } from './schema.ts'

/** A batch under way still ends; nothing after it begins. */
export async function pauseConsumer(log: Log, name: string): Promise<void> {
  await pause(log, [name])
}

/** Goes on, at once: a wait after failures is over too. */
export async function resumeConsumer(log: Log, name: string): Promise<void> {
  await resume(log, [name])
}

/**
 * Moves the checkpoint, in either direction, and nothing else: what was applied stays applied. Dead letters of events that
 * will come again are closed, in the same transaction: whoever goes on from there finds none of them open, and opens
 * those again that fail again.
 */
export async function resetConsumer(
  log: Log,
  name: string,
  position: number,
  executor: Executor = log.database,
): Promise<void> {
  checkWhole('position', position, 0, maxPosition)
  await together(log, executor, async tx => {
    await lockLetters(log, name, tx)
    await move(log, name, { checkpoint: position }, tx)
    await tx.run(sql`/* dead_letters.superseded */
      update ${consumerNames(log).dead_letters}
      set state = 'resolved',
        retry_at = null,
        note = 'the consumer was reset to a position before this event',
        history = case when jsonb_array_length(history) < ${keptEntries}::integer then history else history - 0 end
          || jsonb_build_array(jsonb_build_object(
            'at', ${log.names.clock}(last_failed_at), 'from', state, 'to', 'resolved', 'note', 'reset'))
      where consumer = ${name}::text
        and position > ${position}::bigint
        and state in ('open', 'retrying')`)
  })
}

/** The consumer's row goes, and its dead letters. */
export async function deleteConsumer(log: Log, name: string, executor: Executor = log.database): Promise<void> {
  await together(log, executor, async tx => {
    await lockLetters(log, name, tx)
    await forget(log, [name], tx)
    await tx.run(sql`/* dead_letters.delete_all */
      delete from ${consumerNames(log).dead_letters}
      where consumer = ${name}::text`)
  })
}

/** In the caller's transaction, or in one of our own. */
async function together(log: Log, executor: Executor, work: (tx: Executor) => Promise<void>): Promise<void> {
  // A replay that is just putting its letter back may be in the way, and is then through in a moment.
  const again = { retries: 3, clock: log.clock }
  await (executor === log.database ? retry(() => log.database.transaction(work), again) : work(executor))
}

/** Letters before the consumer's row, in the order of its batches and replays: otherwise we could wait for each other. */
async function lockLetters(log: Log, name: string, tx: Executor): Promise<void> {
  await tx.runArrays(sql`/* dead_letters.lock */
    select
    from ${consumerNames(log).dead_letters}
    where consumer = ${name}::text
      and state in ('open', 'retrying')
    order by position
    for update`)
}

export async function notFound(
  log: Log,
  name: string,
  executor: Executor = log.database,
): Promise<InstanceType<typeof ConsumerNotFound>> {
  const rows = await executor.run<{ name: string }>(sql`/* consumers.names */
    select name
    from ${consumerNames(log).consumers}`)
  return new ConsumerNotFound({
    consumer: name,
    nearest: nearestName(
      name,
      rows.map(row => row.name),
    ),
  })
}
