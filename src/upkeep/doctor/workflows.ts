/** Checks the work of handlers: whether there is a worker that can do it, and whether anything is stuck. */
import { once } from '../../core/abort.ts'
import { counted } from '../../core/core.ts'
import type { Log } from '../../events/log.ts'
import { listHandlers } from '../../workflows/insight/handlers.ts'
import { readLostWorkers, readParkedLanes } from '../../workflows/insight/queues.ts'
import type { Check } from './doctor.ts'

export function checkWorkflows(log: Log): Check[] {
  // Two checks look at the same: counting all open executions twice would double their cost.
  const readHandlers = once(() => listHandlers(log, { limit: 10_000 }))
  return [
    {
      name: 'workflows.without_code',
      ok: 'Every handler that has open executions has a worker with its code.',
      async find() {
        const { items: handlers } = await readHandlers()
        return handlers.flatMap(({ handler, version, workers, open }) => {
          const count = Object.values(open).reduce((sum, each) => sum + each, 0)
          if (workers > 0 || count === 0) return []
          return {
            level: 'warning' as const,
            message: `${counted(count, 'execution waits', 'executions wait')} for version ${version} of handler "${handler}", and no runner has its code.`,
            fix: 'Start a program that registers it (store.start(), or rillflow run), or cancel the workflows that wait for it: rillflow workflows cancel ID.',
          }
        })
      },
    },
    {
      name: 'workflows.workers',
      ok: 'No worker has died with executions.',
      async find() {
        const workers = await readLostWorkers(log)
        return workers.map(({ worker, executions }) => ({
          level: 'warning' as const,
          message: `Runner ${worker} has sent no heartbeat for longer than its lease, and still has ${counted(executions, 'execution')}.`,
          fix: 'Start a program that runs handlers (store.start(), or rillflow run). Any runner that has their handlers takes the executions over.',
        }))
      },
    },
    {
      name: 'workflows.parked',
      ok: 'No execution is parked.',
      async find() {
        const { items: handlers } = await readHandlers()
        return handlers.flatMap(({ handler, version, open }) => {
          if (open.parked === 0) return []
          return {
            level: 'warning' as const,
            message: `${counted(open.parked, 'execution')} of version ${version} of handler "${handler}" cannot continue: parked, because the code does not fit the recorded steps.`,
            fix: 'Deploy code that fits and resume them (rillflow workflows resume ID), or dead-letter them (rillflow workflows reject ID). store.workflows.executions.list({ state: "parked" }) and rillflow workflows list --state parked show them.',
          }
        })
      },
    },
    {
      name: 'workflows.lanes',
      ok: 'No lane is parked.',
      async find() {
        const lanes = await readParkedLanes(log)
        return lanes.map(({ lane, executions }) => ({
          level: 'warning' as const,
          message: `Lane ${lane} is parked behind a dead letter, with ${counted(executions, 'execution')} in it.`,
          fix: 'Retry or resolve the dead letter. store.workflows.lanes.list({ isParked: true }) and rillflow dead-letters list show it.',
        }))
      },
    },
  ]
}
