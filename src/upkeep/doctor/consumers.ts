/** What follows the log: is somebody at it, how far behind is it, what has it set aside. */
import { consumerNames } from '../../consumers/schema.ts'
import { type ConsumerStatus, readStatus } from '../../consumers/status.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Check, Limits, Trouble } from './doctor.ts'

export function checkConsumers(log: Log, { lagMs }: Limits): Check[] {
  let statuses: Promise<ConsumerStatus[]> | undefined
  const read = (): Promise<ConsumerStatus[]> => {
    statuses ??= readStatus(log)
    return statuses
  }
  const each = (find: (status: ConsumerStatus) => Trouble | undefined) => async (): Promise<Trouble[]> =>
    (await read()).flatMap(status => find(status) ?? [])
  return [
    {
      name: 'consumers.stopped',
      ok: 'No consumer is stopped, paused or failing.',
      find: each(status => {
        const { name, isPaused, lastError, attempts, checkpoint } = status
        const why = lastError === undefined ? '' : ` (${lastError.name}: ${lastError.message})`
        if (isPaused && attempts > 0)
          return {
            level: 'error',
            message: `Consumer "${name}" has stopped after ${checkpoint}: the event after it failed${why}.`,
            mend: `Mend its handler, then ${resumeOf(status)}.`,
          }
        if (isPaused)
          return { level: 'warning', message: `Consumer "${name}" is paused.`, mend: `${resumeOf(status)}.` }
        if (attempts === 0) return undefined
        return {
          level: 'warning',
          message: `Consumer "${name}" has failed ${attempts} times in a row at the event after ${checkpoint}${why}.`,
          mend: 'Mend its handler; it is tried again by itself.',
        }
      }),
    },
    {
      name: 'consumers.lag',
      ok: `No consumer is more than ${lagMs / 1000} s behind.`,
      find: each(status => {
        const { name, lag, lagSeconds, lease } = status
        if (lagSeconds * 1000 <= lagMs) return undefined
        const holder = lease === undefined ? 'nobody runs it' : `it is run by ${lease.owner}`
        return {
          level: 'warning',
          message: `Consumer "${name}" is ${lag} positions and ${Math.round(lagSeconds)} s behind; ${holder}.`,
          mend:
            lease === undefined
              ? `Start ${runnerOf(status)}; or, if it is not used any more, ${removalOf(status)}.`
              : 'Look at how long its handler takes, raise its batchSize, or divide its work.',
        }
      }),
    },
    { name: 'consumers.leases', ok: 'No lease was left behind.', find: () => expiredLeases(log) },
    { name: 'consumers.rebuilds', ok: 'No read model waits to be rebuilt.', find: () => owedRebuilds(log) },
    { name: 'dead_letters', ok: 'There are no open dead letters.', find: () => openLetters(log) },
  ]
}

function runnerOf({ kind }: ConsumerStatus): string {
  if (kind === 'subscription') return 'the program that subscribes to it'
  return 'a daemon, or the program, that has its code (store.daemon().start(), or rillflow run)'
}

/** As long as its row is there, retention keeps for it what it has not read. */
function removalOf({ kind, name }: ConsumerStatus): string {
  if (kind !== 'subscription') return `store.consumers.remove(${JSON.stringify(name)})`
  const [subscription, group] = partsOf(name)
  return `store.subscriptions.delete(${JSON.stringify(subscription)}, ${JSON.stringify(group)})`
}

/** The subscription and the group in a consumer's name. */
function partsOf(name: string): string[] {
  return name.replace(/#\d+$/, '').split('/').map(decodeURIComponent)
}

function resumeOf({ kind, name }: ConsumerStatus): string {
  if (kind === 'projection')
    return `store.projections.resume(${JSON.stringify(name)}), or rillflow projections resume ${name}`
  if (kind !== 'subscription') return 'start the program that runs it again'
  const [subscription, group] = partsOf(name)
  const call = `store.subscriptions.resume(${JSON.stringify(subscription)}, ${JSON.stringify(group)})`
  return `${call}, or rillflow subscriptions resume ${subscription} --group ${group}`
}

/** Whoever had it died or is stuck, and nobody has taken over for as long as the lease again. */
async function expiredLeases(log: Log): Promise<Trouble[]> {
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run<{ name: string; owner: string; expired_ms: number }>(sql`/* doctor.leases */
    select c.name, c.owner, (extract(epoch from ${log.names.clock}(c.lease_until) - c.lease_until) * 1000)::float8 as expired_ms
    from ${consumerNames(log).consumers} as c
    where c.owner is not null
      and (c.lease_until < ${log.names.clock}(c.lease_until)
        or (${sign}::text is not null and split_part(c.owner, '/', 1) <> ${sign}::text))
    order by c.name`)
  return rows.map(({ name, owner, expired_ms }) => ({
    level: 'warning' as const,
    message: `The lease of consumer "${name}" was left behind by ${owner}${expired_ms > 0 ? ` ${Math.round(expired_ms / 1000)} s ago` : ''}, and nobody has taken it since.`,
    mend: 'Start a daemon that has its code, or rillflow run: it takes the lease by itself.',
  }))
}

async function owedRebuilds(log: Log): Promise<Trouble[]> {
  const rows = await log.database.run<{ name: string; is_cut: boolean }>(sql`/* doctor.rebuilds */
    select name, definition ->> 'rebuild' = 'pending' as is_cut
    from ${consumerNames(log).consumers}
    where definition ->> 'rebuild' = 'pending'
      or (state in ('emptying', 'rebuilding') and (owner is null or lease_until < ${log.names.clock}(lease_until)))
    order by name`)
  return rows.map(({ name, is_cut: isCut }) => ({
    level: 'warning' as const,
    message: isCut
      ? `Projection "${name}" tells of events that were cut from the log.`
      : `The rebuild of projection "${name}" was interrupted.`,
    mend: isCut
      ? 'Start a daemon that has its code, or rillflow run; or register it, if it is inline: it is rebuilt first.'
      : `store.projections.rebuild(${JSON.stringify(name)}), or rillflow projections rebuild ${name}.`,
  }))
}

function retryOf(consumer: string): string {
  return consumer.startsWith('handler:')
    ? `store.workflows.deadLetters.retryAll({ handler: ${JSON.stringify(consumer.slice('handler:'.length))} })`
    : `store.deadLetters.retry(${JSON.stringify(consumer)}, {})`
}

async function openLetters(log: Log): Promise<Trouble[]> {
  const rows = await log.database.run<{ consumer: string; count: number }>(sql`/* doctor.letters */
    select consumer, count(*) as count
    from ${consumerNames(log).dead_letters}
    where state in ('open', 'retrying')
    group by consumer
    order by consumer`)
  return rows.map(({ consumer, count }) => ({
    level: 'warning' as const,
    message: `${count} events failed for good at "${consumer}".`,
    mend: `Mend what failed, then ${retryOf(consumer)}, or rillflow dead-letters retry ${consumer} --all; or resolve them.`,
  }))
}
