/** Everybody who works off jobs, by name. Only the one that is asked for is loaded. */
import type { JobQueue, JobQueueOptions } from './job-queue.ts'

export const jobQueues = ['ours', 'pg-boss', 'graphile-worker'] as const
export type JobQueueName = (typeof jobQueues)[number]

export const jobSchemas: Readonly<Record<JobQueueName, string>> = {
  ours: 'rillflow',
  'pg-boss': 'pgboss',
  'graphile-worker': 'graphile_worker',
}

/** What they write to, to be emptied between runs. */
export const jobTables = [
  ...['rillflow.events', 'rillflow.streams'],
  ...['rillflow.workflows', 'rillflow.workflow_executions', 'rillflow.workflow_activity'],
  ...['rillflow.workflow_joins', 'rillflow.workflow_join_entries', 'rillflow.workflow_branches'],
  ...['pgboss.job', 'pgboss.job_dependency'],
  'graphile_worker._private_jobs',
]

export async function openJobQueue(name: JobQueueName, options: JobQueueOptions): Promise<JobQueue> {
  if (name === 'ours') return (await import('../peers/rillflow-workflows.ts')).openWorkflows(options)
  if (name === 'pg-boss') return (await import('../peers/pg-boss.ts')).openPgBoss(options)
  // Looked at when it is loaded: it then makes no words about each job.
  process.env.NO_LOG_SUCCESS = '1'
  return (await import('../peers/graphile-worker.ts')).openGraphileWorker(options)
}
