/**
 * The job queues that are compared, by name: opened in this process, or run in a process of their own.
 *
 * A queue is loaded only when it is opened.
 */
import { newerNode } from '../harness/newer-node.ts'
import { runProgram } from '../harness/program.ts'
import type { JobQueueLoadAnswer, JobQueueLoadInput } from '../programs/job-queue-load.ts'
import type { JobQueue, JobQueueOptions } from './job-queue.ts'

export const jobQueues = ['ours', 'pg-boss', 'graphile-worker', 'dbos'] as const
export type JobQueueName = (typeof jobQueues)[number]

export const jobSchemas: Readonly<Record<JobQueueName, string>> = {
  ours: 'rillflow',
  'pg-boss': 'pgboss',
  'graphile-worker': 'graphile_worker',
  dbos: 'dbos',
}

/** The tables that they write to, to be emptied between runs. */
export const jobTables = [
  ...['rillflow.events', 'rillflow.streams'],
  ...['rillflow.workflows', 'rillflow.workflow_executions', 'rillflow.workflow_activity', 'rillflow.workflow_steps'],
  ...['rillflow.workflow_joins', 'rillflow.workflow_join_entries', 'rillflow.workflow_branches'],
  ...['pgboss.job', 'pgboss.job_dependency'],
  'graphile_worker._private_jobs',
  ...['dbos.workflow_status', 'dbos.operation_outputs', 'dbos.notifications'],
]

export async function openJobQueue(name: JobQueueName, options: JobQueueOptions): Promise<JobQueue> {
  if (name === 'ours') return (await import('../peers/rillflow-workflows.ts')).openWorkflows(options)
  if (name === 'dbos') return (await import('../peers/dbos.ts')).openDbos(options)
  if (name === 'pg-boss') return (await import('../peers/pg-boss.ts')).openPgBoss(options)
  // Read when the package is loaded: without it, graphile-worker logs every job.
  process.env.NO_LOG_SUCCESS = '1'
  return (await import('../peers/graphile-worker.ts')).openGraphileWorker(options)
}

/** Puts load on a queue in a new process. All queues run on the same Node. */
export function loadJobQueue(input: JobQueueLoadInput): Promise<JobQueueLoadAnswer> {
  return runProgram<JobQueueLoadAnswer>('job-queue-load', input, { node: newerNode() })
}

/** Each queue makes its tables when it is first opened. */
export async function makeJobTables(url: string): Promise<void> {
  for (const contestant of jobQueues) await loadJobQueue({ contestant, place: { url }, setup: {}, load: { jobs: 1 } })
}
