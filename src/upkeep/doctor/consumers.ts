/** Checks consumers: whether they run, how far they are behind, and their dead letters. */

import { ownerName } from '../../consumers/dead-letters/owner.ts'
import { countDeadLetters } from '../../consumers/dead-letters/stats.ts'
import { readAbandonedLeases, readWaitingRebuilds, type WaitingRebuild } from '../../consumers/insight.ts'
import { type RowStatus, readStatus } from '../../consumers/status.ts'
import { counted } from '../../core/core.ts'
import type { Log } from '../../events/log.ts'
import type { Check, DoctorLimits, DoctorParts, FoundProblem } from './doctor.ts'

/** Of an owner and a state, this count stands for that many or more. */
const maxCounted = 10_000

export function checkConsumers({ log, consumers }: DoctorParts, { lagMs }: DoctorLimits): Check[] {
  let statuses: Promise<RowStatus[]> | undefined
  const readOnce = (): Promise<RowStatus[]> => {
    statuses ??= readStatus(log)
    return statuses
  }
  const isOrphaned = (status: RowStatus): boolean => status.isUnseen && !consumers.hasCodeFor(status)
  const ofEach = (find: (status: RowStatus) => FoundProblem | undefined) => async (): Promise<FoundProblem[]> =>
    (await readOnce()).flatMap(status => find(status) ?? [])
  return [
    { name: 'consumers.stopped', ok: 'No consumer is stopped, paused or failing.', find: ofEach(findStopped) },
    {
      name: 'consumers.lag',
      ok: `No consumer is more than ${lagMs / 1000} s behind.`,
      find: ofEach(status => (isOrphaned(status) ? undefined : findLag(status, lagMs))),
    },
    {
      name: 'consumers.checkpoints',
      ok: 'No checkpoint is beyond the end of the log.',
      find: ofEach(findBeyondHead),
    },
    {
      name: 'consumers.orphaned',
      ok: 'Every consumer has a process with its code.',
      find: ofEach(status => (isOrphaned(status) ? toOrphanProblem(status) : undefined)),
    },
    { name: 'consumers.leases', ok: 'No lease was abandoned.', find: () => findAbandonedLeases(log) },
    { name: 'consumers.rebuilds', ok: 'No read model has to be rebuilt.', find: () => findRebuilds(log) },
    { name: 'dead_letters', ok: 'There are no open dead letters.', find: () => findDeadLetters(log) },
  ]
}

function findStopped(status: RowStatus): FoundProblem | undefined {
  const { name, isPaused, lastError, attempts, checkpoint } = status
  const error = lastError === undefined ? '' : ` (${lastError.name}: ${lastError.message})`
  if (isPaused && attempts > 0)
    return {
      level: 'error',
      message: `Consumer "${name}" has stopped at position ${checkpoint}, because the next event failed${error}.`,
      fix: `Fix its code, then call ${callOf('resume', status)}.`,
    }
  if (isPaused)
    return { level: 'warning', message: `Consumer "${name}" is paused.`, fix: `Call ${callOf('resume', status)}.` }
  if (attempts === 0) return undefined
  return {
    level: 'warning',
    message: `Consumer "${name}" has failed ${counted(attempts, 'time')} in a row at the event after position ${checkpoint}${error}.`,
    fix: 'Fix its code. The event is tried again without further action.',
  }
}

function findLag(status: RowStatus, lagMs: number): FoundProblem | undefined {
  const { name, lag, lagSeconds, lease } = status
  if (lagSeconds * 1000 <= lagMs) return undefined
  const holder = lease === undefined ? 'no runner runs it' : `${lease.owner} runs it`
  return {
    level: 'warning',
    message: `Consumer "${name}" is ${counted(lag, 'position')} and ${Math.round(lagSeconds)} s behind, and ${holder}.`,
    // As long as its row exists, retention keeps all events that it has not read.
    fix:
      lease === undefined
        ? `Start a program that has its code (store.start(), or rillflow run). If it is no longer needed, call ${callOf('remove', status)}.`
        : 'Look at how long its code takes, raise its batchSize, or divide its work.',
  }
}

function toOrphanProblem(status: RowStatus): FoundProblem {
  const { name, kind, lag } = status
  const tables = kind === 'projection' ? ' With { dropTables: true } its tables are dropped, too.' : ''
  return {
    level: 'warning',
    message: `No process has the code of consumer "${name}". It is ${counted(lag, 'position')} behind, and retention keeps all events after its checkpoint.`,
    fix: `If it is no longer needed, call ${callOf('remove', status)}.${tables} Otherwise start a program that has its code.`,
  }
}

function findBeyondHead(status: RowStatus): FoundProblem | undefined {
  const { name, kind, checkpoint, head, isBeyondHead } = status
  if (!isBeyondHead) return undefined
  const rebuild = kind === 'projection' ? `, or rebuild it: store.projections.rebuild(${JSON.stringify(name)})` : ''
  return {
    level: 'error',
    message: `The checkpoint of consumer "${name}" is ${checkpoint}, but the log ends at ${head}: another log, or an older one, was put in its place. The consumer does not run, because it would miss the events up to its checkpoint when they come.`,
    fix: `Move it to a position that you trust with ${callOf('reset', status)}${rebuild}.`,
  }
}

/** The call of `store.consumers` that names this consumer. */
function callOf(verb: 'resume' | 'remove' | 'reset', { kind, name }: RowStatus): string {
  const position = verb === 'reset' ? ', position' : ''
  if (kind !== 'subscription') return `store.consumers.${verb}(${JSON.stringify(name)}${position})`
  const [subscription, group] = name.replace(/#\d+$/, '').split('/').map(decodeURIComponent)
  return `store.consumers.${verb}(${JSON.stringify(subscription)}${position}, { group: ${JSON.stringify(group)} })`
}

async function findAbandonedLeases(log: Log): Promise<FoundProblem[]> {
  const leases = await readAbandonedLeases(log)
  return leases.map(({ consumer, owner, expiredMs }) => ({
    level: 'warning' as const,
    message: `The lease of consumer "${consumer}" was abandoned by ${owner}${expiredMs > 0 ? ` ${Math.round(expiredMs / 1000)} s ago` : ''}, and no runner has taken it since.`,
    fix: 'Start a program that has its code (store.start(), or rillflow run). It takes the lease without further action.',
  }))
}

async function findRebuilds(log: Log): Promise<FoundProblem[]> {
  return (await readWaitingRebuilds(log)).map(toRebuildProblem)
}

function toRebuildProblem({ projection, reason }: WaitingRebuild): FoundProblem {
  if (reason === 'cut')
    return {
      level: 'warning',
      message: `Projection "${projection}" has applied events that were cut from the log, so it has to be rebuilt.`,
      fix: 'Start a program that has its code (store.start(), or rillflow run). It rebuilds the projection before it applies anything new.',
    }
  return {
    level: 'warning',
    message: `The rebuild of projection "${projection}" was interrupted.`,
    fix: `Call store.projections.rebuild(${JSON.stringify(projection)}), or run: rillflow projections rebuild ${projection}.`,
  }
}

async function findDeadLetters(log: Log): Promise<FoundProblem[]> {
  const { items } = await countDeadLetters(log, { limit: 1_000 })
  return items.flatMap(({ open, retrying, ...owner }) => {
    const count = open + retrying
    if (count === 0) return []
    const name = ownerName(owner)
    const kind = owner.handler === undefined ? 'Consumer' : 'Handler'
    const said = count >= maxCounted ? `${maxCounted} or more` : count
    return [
      {
        level: 'warning' as const,
        message: `${kind} "${name}" has ${said} open dead ${count === 1 ? 'letter' : 'letters'}.`,
        fix: `Fix the cause, then retry them with store.deadLetters.retryAll, or run: rillflow dead-letters retry ${name} --all. Or resolve them.`,
      },
    ]
  })
}
