/** A sample of the stored events of each type, read by the upcasters and checked by the schemas of this program. */
import { checkSchema } from '../../core/schema-check.ts'
import { type SampledEvent, sampleEvents } from '../../events/read/sample.ts'
import type { Check, FoundProblem } from '../doctor/doctor.ts'
import type { DeploymentParts } from './deployment.ts'
import { firstOf, maxNamed } from './named.ts'

export function checkEvents({ log }: DeploymentParts): Check[] {
  return [
    {
      name: 'events.read',
      ok: 'The sampled events of each type are read by the upcasters, and fit the schemas.',
      async find() {
        const faults = new Map<string, Fault>()
        for await (const sampled of sampleEvents(log)) {
          const reason = await faultOf(log, sampled)
          if (reason === undefined) continue
          const { type, schemaVersion, id } = sampled.stored
          const key = JSON.stringify([type, schemaVersion])
          const fault = faults.get(key) ?? { type, schemaVersion, reason, ids: [] }
          if (fault.ids.length < maxNamed) fault.ids.push(id)
          faults.set(key, fault)
        }
        return [...faults.values()].map(problemOf)
      },
    },
  ]
}

interface Fault {
  readonly type: string
  readonly schemaVersion: number
  readonly reason: string
  readonly ids: string[]
}

async function faultOf(
  { schemas }: DeploymentParts['log'],
  { read, error }: SampledEvent,
): Promise<string | undefined> {
  if (read === undefined) return error instanceof Error ? error.message : String(error)
  const schema = schemas.get(read.type)
  if (schema === undefined)
    return schemas.size === 0 ? undefined : `Type ${read.type} is not among the events that are defined.`
  const [issue] = await checkSchema(schema, read.data, 'data')
  return issue && `It does not fit its schema: ${issue.path}: ${issue.message}.`
}

function problemOf({ type, schemaVersion, reason, ids }: Fault): FoundProblem {
  return {
    level: 'error',
    message: `Stored events of type ${type} version ${schemaVersion} do not fit this program: ${firstOf(ids)}. ${reason}`,
    fix: `Add an upcaster that brings them into the new shape: defineUpcaster('${type}', { from: ${schemaVersion}, to: ${schemaVersion + 1}, run: … }); or keep the old type defined.`,
    of: ids,
  }
}
