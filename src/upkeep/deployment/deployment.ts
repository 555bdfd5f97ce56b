/**
 * Checks before a deployment whether the definitions of this program fit what a store holds. It reads, and changes nothing:
 * a store that was opened with `register: false` and the rights of a reader is enough.
 *
 *     executions   each open one with recorded calls is rehearsed: would it be parked?        (executions.ts)
 *     events       a sample of each type, read by the new upcasters and schemas               (events.ts)
 *     states       a sample of documents and snapshots, folded again by the new code          (states.ts)
 *     served       handlers, schedules and consumers that are stored and have no code here    (served.ts)
 *     schema       the steps of the next sync, and whether they lock                          (tables.ts)
 *
 * Each check gives its findings as the doctor does. An error is something that would break; a warning is something to know.
 * A sample can miss a fault; the rehearsal of executions is of all of them.
 *
 * What can fail: a check that cannot be made, for instance because the schema is older than this version, gives a warning
 * that says so, and the others are made.
 */
import type { Aggregate } from '../../aggregates/aggregate.ts'
import type { ConsumerAdministration } from '../../consumers/administration.ts'
import type { ReadDocuments } from '../../documents/documents.ts'
import type { Log } from '../../events/log.ts'
import type { DocumentProjection } from '../../projections/document-projection.ts'
import type { Projection } from '../../projections/projection.ts'
import type { States } from '../../projections/states.ts'
import type { Schema } from '../../schema/schema.ts'
import type { WorkflowRegistry, Workflows } from '../../workflows/workflows.ts'
import { type Finding, type OnChecked, runChecks } from '../doctor/doctor.ts'
import { checkEvents } from './events.ts'
import { checkExecutions } from './executions.ts'
import { checkServed } from './served.ts'
import { checkStates } from './states.ts'
import { checkTables } from './tables.ts'

export interface DeploymentOptions {
  signal?: AbortSignal | undefined
  /** Called after each check. */
  onProgress?: OnChecked | undefined
}

export interface DeploymentCheck {
  /** Whether nothing would break. There may be warnings. */
  readonly isSafe: boolean
  readonly findings: readonly Finding[]
}

export interface DeploymentParts {
  readonly log: Log
  readonly schema: Schema
  readonly workflows: Pick<Workflows, 'handlers' | 'schedules'> &
    Pick<WorkflowRegistry<never>, 'rehearse' | 'versionsOf'>
  readonly consumers: ConsumerAdministration
  /** The stored documents of a projection. */
  readonly documents: (projection: DocumentProjection) => ReadDocuments
  readonly states: States
  /** The aggregates and projections of this process. */
  readonly folded: () => readonly (Aggregate | Projection)[]
}

export async function checkDeployment(
  parts: DeploymentParts,
  options: DeploymentOptions = {},
): Promise<DeploymentCheck> {
  parts.log.database.refuseInsideTransaction('checkDeployment')
  const checks = [
    ...checkTables(parts),
    ...checkExecutions(parts),
    ...checkServed(parts),
    ...checkEvents(parts),
    ...checkStates(parts),
  ]
  const findings = await runChecks(checks, options)
  return { isSafe: !findings.some(({ level }) => level === 'error'), findings }
}
