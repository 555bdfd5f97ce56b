/** How states of workflows, executions and attempts look. */
import type { Json } from '../../src/server/api/contract.ts'
import type { Attempt } from '../../src/workflows/insight/activity.ts'
import type { WorkflowState } from '../../src/workflows/status.ts'
import { State, type StateLook } from '../parts/parts.tsx'
import type { ExecutionLookState } from './workflow/replay.ts'

const workflow: Record<WorkflowState, StateLook> = {
  running: { shape: 'running', tone: 'run', word: 'Running' },
  waiting: { shape: 'waiting', tone: 'wait', word: 'Waiting' },
  failed: { shape: 'failed', tone: 'bad', word: 'Failed' },
  compensating: { shape: 'retrying', tone: 'warn', word: 'Compensating' },
  compensated: { shape: 'none', tone: 'rest', word: 'Compensated' },
  compensationFailed: { shape: 'failed', tone: 'bad', word: 'Compensation failed' },
  cancelled: { shape: 'none', tone: 'rest', word: 'Cancelled' },
  settled: { shape: 'done', tone: 'good', word: 'Settled' },
  parked: { shape: 'parked', tone: 'warn', word: 'Parked' },
  unknown: { shape: 'none', tone: 'rest', word: 'Unknown' },
}

export function workflowLook(state: WorkflowState): StateLook {
  return workflow[state]
}

const execution: Record<ExecutionLookState, StateLook> = {
  ready: { shape: 'queued', tone: 'rest', word: 'Queued' },
  running: { shape: 'running', tone: 'run', word: 'Running' },
  delayed: { shape: 'waiting', tone: 'warn', word: 'Delayed' },
  suspended: { shape: 'waiting', tone: 'wait', word: 'Waiting' },
  blocked: { shape: 'queued', tone: 'rest', word: 'Behind its lane' },
  held: { shape: 'queued', tone: 'rest', word: 'Held' },
  unkeyed: { shape: 'queued', tone: 'rest', word: 'Queued' },
  parked: { shape: 'parked', tone: 'warn', word: 'Parked' },
  stopping: { shape: 'none', tone: 'rest', word: 'Stopping' },
  completed: { shape: 'done', tone: 'good', word: 'Done' },
  skipped: { shape: 'none', tone: 'rest', word: 'Skipped' },
  failed: { shape: 'failed', tone: 'bad', word: 'Dead letter' },
  cancelled: { shape: 'none', tone: 'rest', word: 'Cancelled' },
  none: { shape: 'queued', tone: 'rest', word: 'Not yet' },
}

export function executionLook(state: ExecutionLookState, isDead = false): StateLook {
  return isDead ? execution.failed : execution[state]
}

/** How an attempt ended, in a word. */
export function outcomeLook(attempt: Pick<Json<Attempt>, 'kind' | 'outcome'>) {
  if (attempt.kind === 'completed') return <State shape="done" tone="good" word="Done" />
  if (attempt.outcome === 'retry') return <State shape="retrying" tone="warn" word="Tried again" />
  if (attempt.outcome === 'timeout') return <State shape="behind" tone="warn" word="Timed out" />
  return <State shape="failed" tone="bad" word="Dead letter" />
}
