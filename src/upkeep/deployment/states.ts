/**
 * A sample of stored states – documents of projections, snapshots of aggregates – compared with what the code of this
 * program folds from the same events. A difference means that the code has changed and its version has not: old and new
 * states would stand side by side.
 */
import type { Aggregate } from '../../aggregates/aggregate.ts'
import { sampleSnapshots } from '../../aggregates/snapshot.ts'
import { InvalidOption } from '../../core/errors.ts'
import { canonicalJson } from '../../core/json.ts'
import type { DocumentProjection } from '../../projections/document-projection.ts'
import type { Projection } from '../../projections/projection.ts'
import type { Check, FoundProblem } from '../doctor/doctor.ts'
import type { DeploymentParts } from './deployment.ts'
import { firstOf } from './named.ts'

/** How many states are folded again, from each end of their ids. */
const sampleSize = 25

export function checkStates(parts: DeploymentParts): Check[] {
  return [
    {
      name: 'projections.fold',
      ok: 'The sampled documents of projections are what their code makes of the events.',
      async find() {
        const problems: FoundProblem[] = []
        for (const projection of parts.folded().filter(isStoredProjection))
          problems.push(...problemsOf(projection.name, 'projection', await differingDocuments(parts, projection)))
        return problems
      },
    },
    {
      name: 'aggregates.fold',
      ok: 'The sampled snapshots are what the code of their aggregates makes of the events.',
      async find() {
        const problems: FoundProblem[] = []
        for (const aggregate of parts.folded().filter(hasSnapshots))
          problems.push(...problemsOf(aggregate.name, 'aggregate', await differingSnapshots(parts, aggregate)))
        return problems
      },
    },
  ]
}

/** Those whose documents belong to one stream each: only these can be folded one by one. */
function isStoredProjection(each: Aggregate | Projection): each is DocumentProjection {
  return each.kind === 'projection' && each.fold !== undefined && each.lifecycle !== 'live'
}

function hasSnapshots(each: Aggregate | Projection): each is Aggregate {
  return each.kind === 'aggregate' && each.snapshots !== undefined && each.snapshotForm !== 'none'
}

interface Sampled {
  readonly stream: string
  readonly version: number
  readonly stored: unknown
}

async function differingDocuments(parts: DeploymentParts, projection: DocumentProjection): Promise<string[]> {
  const all = parts.documents(projection).query()
  const sampled: Sampled[] = []
  for (const direction of ['asc', 'desc'] as const)
    for (const { id, version, data } of await all
      .orderBy((_, meta) => meta.id, direction)
      .limit(sampleSize)
      .toArray())
      sampled.push({ stream: id, version, stored: data })
  return differing(parts, projection.name, sampled)
}

async function differingSnapshots(parts: DeploymentParts, aggregate: Aggregate): Promise<string[]> {
  const sampled = await sampleSnapshots(parts.log, aggregate, sampleSize)
  return differing(
    parts,
    aggregate.name,
    sampled.map(({ stream, version, body }) => ({ stream, version, stored: body })),
  )
}

/** The streams whose events fold to another state than the stored one. */
async function differing({ states }: DeploymentParts, name: string, sampled: readonly Sampled[]): Promise<string[]> {
  const streams = new Set<string>()
  for (const { stream, version, stored } of sampled) {
    try {
      const { state } = await states.at(name, stream, { version })
      if (canonicalJson(state) !== canonicalJson(stored)) streams.add(stream)
    } catch (error) {
      // The stream is too long to be folded for a look.
      if (error instanceof InvalidOption) continue
      streams.add(stream)
    }
  }
  return [...streams]
}

function problemsOf(name: string, kind: 'projection' | 'aggregate', streams: readonly string[]): FoundProblem[] {
  if (streams.length === 0) return []
  const [stored, raise] =
    kind === 'projection'
      ? ['documents', `Raise its version: it is then rebuilt while the old one still serves.`]
      : ['snapshots', `Raise its stateVersion: snapshots of the old shape are then no longer used.`]
  return [
    {
      level: 'error',
      message: `The code of ${kind} "${name}" makes other states of the same events than its stored ${stored} have: ${firstOf(streams)}.`,
      fix: raise,
      of: streams,
    },
  ]
}
