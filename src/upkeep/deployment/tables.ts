/** The steps that a sync of the schema would run for this program, and which of them make writers wait. */
import type { Step } from '../../schema/difference.ts'
import type { Check, FoundProblem } from '../doctor/doctor.ts'
import type { DeploymentParts } from './deployment.ts'
import { firstOf } from './named.ts'

export function checkTables({ schema }: DeploymentParts): Check[] {
  return [
    {
      name: 'schema.sync',
      ok: 'The schema is as this program needs it.',
      async find() {
        const { steps, problems } = await schema.plan()
        const broken = problems.map(
          ({ object, problem, fix }): FoundProblem => ({ level: 'error', message: `${object} ${problem}.`, fix }),
        )
        if (steps.length === 0) return broken
        const objects = steps.map(({ object }) => object)
        const locking = [...new Set(steps.filter(locksWriters).map(({ object }) => object))]
        const waits =
          locking.length === 0
            ? 'None of them makes writers wait longer than for a moment.'
            : `Writers wait while ${firstOf(locking)} ${locking.length === 1 ? 'is' : 'are'} made.`
        const pending: FoundProblem = {
          level: 'warning',
          message: `${steps.length === 1 ? 'A step' : `${steps.length} steps`} of a sync would run: ${firstOf(objects)}. ${waits}`,
          fix: `rillflow schema sync, before the new version starts${locking.length === 0 ? '' : ', at a quiet time'}`,
          of: objects,
        }
        return [...broken, pending]
      },
    },
  ]
}

/** A new column without a volatile default, a new table and a function are made in a moment; a migration may take longer. */
function locksWriters(step: Step): boolean {
  return step.locksWriters === true || step.kind === 'migration'
}
