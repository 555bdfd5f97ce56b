/** Open executions with recorded calls, rehearsed by the code of this process. */
import type { Rehearsal } from '../../workflows/steps/rehearsal.ts'
import type { Check, FoundProblem } from '../doctor/doctor.ts'
import type { DeploymentParts } from './deployment.ts'
import { firstOf, maxNamed } from './named.ts'

export function checkExecutions({ workflows }: DeploymentParts): Check[] {
  return [
    {
      name: 'executions.steps',
      ok: 'Every open execution fits the code of its handler.',
      async find() {
        const groups = new Map<string, Group>()
        for await (const rehearsal of workflows.rehearse()) note(groups, rehearsal)
        return [...groups.values()].map(problemOf)
      },
    },
  ]
}

/** Executions of one version of a handler that end alike. */
interface Group {
  readonly first: Rehearsal
  readonly ids: string[]
  count: number
}

function note(groups: Map<string, Group>, rehearsal: Rehearsal): void {
  const { end, handler, version, executionId } = rehearsal
  // A handler without its code is reported by another check, with all of its executions.
  if (end === 'continues' || end === 'unserved') return
  const key = JSON.stringify([end, handler, version])
  const group = groups.get(key) ?? { first: rehearsal, ids: [], count: 0 }
  group.count++
  if (group.ids.length < maxNamed) group.ids.push(executionId)
  groups.set(key, group)
}

function problemOf({ first: { end, handler, version, error }, ids, count }: Group): FoundProblem {
  const which = `${count === 1 ? 'An open execution' : `${count} open executions`} of handler "${handler}" version ${version}`
  const reason = error?.message ?? ''
  if (end === 'parks')
    return {
      level: 'error',
      message: `${which} would be parked, because the code does not fit the recorded steps: ${firstOf(ids)}. ${reason}`,
      fix: `Give the changed handler the next version (version: ${version + 1}) and keep this one until its executions have ended.`,
      of: ids,
    }
  if (end === 'fails')
    return {
      level: 'warning',
      message: `${which} would fail while its recorded steps are answered: ${firstOf(ids)}. ${reason}`,
      fix: 'Look whether the code throws because of the change. It may also be what the handler does in any case.',
      of: ids,
    }
  return {
    level: 'warning',
    message: `${which} did not come to the end of its recorded steps in time: ${firstOf(ids)}.`,
    fix: 'Move what the handler waits for outside of its steps into a step; then it can be checked.',
    of: ids,
  }
}
