/**
 * States of a stream over time: what an aggregate or a document projection made of it at each version, and which event
 * last changed each field. Everything is folded anew from the log by the code of this process, so it shows what the code
 * says, whatever is stored.
 *
 *     events 1 … n ──► fold ──► state 1 … n ──► differences by path ──► blame: path ─► event
 *
 * Limits: 20 000 events are folded by one call, 200 states of together 8 MiB are returned, 5000 paths are blamed.
 */
import type { Aggregate } from '../aggregates/aggregate.ts'
import { readSnapshots, type StoredSnapshot } from '../aggregates/snapshot.ts'
import { type Named, nameOf } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { pathText } from '../core/json.ts'
import { nearestName } from '../core/name.ts'
import { checkWhole, refuseUnknownOptions } from '../core/options.ts'
import { maxPageBytes } from '../core/page.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { readStream } from '../events/read/read.ts'
import type { Projection } from './projection.ts'

export interface States {
  /** The aggregates and projections of this process whose states can be folded. */
  list(): FoldDescription[]
  /** The state of a stream at a version or a time; without one, now. */
  at(of: Named, stream: string, when?: StateTime): Promise<StateAt>
  /** The states after each event from one version to another, at most 200. The list ends early with the state that reaches 8 MiB. */
  steps(of: Named, stream: string, range: { from: number; to: number }): Promise<StateStep[]>
  /** The snapshots that are stored of a stream: one for each shape that its state has had. */
  snapshots(stream: string): Promise<StoredSnapshot[]>
  /** For each field of the state, the event that last changed it. */
  blame(of: Named, stream: string, when?: { version?: number | undefined }): Promise<BlamedState>
}

export interface StateTime {
  version?: number | undefined
  at?: Date | undefined
}

export interface FoldDescription {
  readonly name: string
  readonly kind: 'aggregate' | 'projection'
}

export interface StateAt {
  /** That of the last event folded; 0 if there is none. */
  readonly version: number
  /** As JSON would have it. */
  readonly state: unknown
}

export interface StateStep extends StateAt {
  readonly event: Pick<RecordedEvent, 'id' | 'type' | 'position' | 'createdAt' | 'userId'>
  /** The paths that this event has changed. */
  readonly changed: readonly string[]
}

export interface BlamedState extends StateAt {
  /** By path: `items[0].price`. */
  readonly blame: Readonly<Record<string, Blame>>
}

export interface Blame extends Pick<RecordedEvent, 'type' | 'version' | 'position' | 'createdAt' | 'userId'> {
  readonly eventId: string
}

interface Folding extends FoldDescription {
  initial(): unknown
  fold(state: unknown, event: RecordedEvent): unknown
  /** A copy as JSON would have it: the code may change a state in place. */
  show(state: unknown): unknown
}

const maxEvents = 20_000
const maxSteps = 200
const maxPaths = 5_000

export interface StatesRegistry {
  readonly states: States
  add(definition: Aggregate | Projection): void
  /** All that were added. */
  definitions(): readonly (Aggregate | Projection)[]
}

export function openStates(log: Log): StatesRegistry {
  const foldings = new Map<string, Folding>()
  const definitions = new Map<string, Aggregate | Projection>()
  const find = (of: Named): Folding => {
    const name = nameOf(of)
    const found = foldings.get(name)
    if (found !== undefined) return found
    const nearest = nearestName(name, foldings.keys())
    const hint = nearest === undefined ? 'Register it with the store first.' : `Did you mean "${nearest}"?`
    throw new InvalidOption({
      option: 'of',
      reason: `This process has no aggregate or document projection "${name}" that folds one stream. ${hint}`,
    })
  }
  return {
    definitions: () => [...definitions.values()],
    add(definition) {
      definitions.set(`${definition.kind} ${definition.name}`, definition)
      const folding = foldingOf(definition)
      if (folding !== undefined) foldings.set(definition.name, folding)
    },
    states: {
      list: () => [...foldings.values()].map(({ name, kind }) => ({ name, kind })),
      async at(of, stream, when = {}) {
        refuseUnknownOptions('store.states.at', when, ['version', 'at'])
        const folding = find(of)
        let version = 0
        const state = await foldEach(log, folding, stream, { to: when.version, until: when.at }, (_, event) => {
          version = event.version
        })
        return { version, state: folding.show(state) }
      },
      async steps(of, stream, range) {
        refuseUnknownOptions('store.states.steps', range, ['from', 'to'])
        const { from, to } = range
        checkWhole('from', from, 1)
        checkWhole('to', to, from, from + maxSteps - 1)
        const folding = find(of)
        const steps: StateStep[] = []
        let before: unknown = folding.show(folding.initial())
        let bytes = 0
        await foldEach(log, folding, stream, { to }, (state, event) => {
          if (event.version < from - 1) return undefined
          const shown = folding.show(state)
          if (event.version >= from) {
            steps.push(stepOf(event, before, shown))
            bytes += JSON.stringify(shown).length
          }
          before = shown
          return bytes >= maxPageBytes ? 'enough' : undefined
        })
        return steps
      },
      snapshots: stream => readSnapshots(log, stream),
      async blame(of, stream, when = {}) {
        refuseUnknownOptions('store.states.blame', when, ['version'])
        const { version } = when
        const folding = find(of)
        const blame = new Map<string, Blame>()
        let last: StateAt = { version: 0, state: folding.show(folding.initial()) }
        await foldEach(log, folding, stream, { to: version }, (state, event) => {
          const shown = folding.show(state)
          for (const { path, isGone } of differences(last.state, shown))
            if (isGone) blame.delete(path)
            else if (blame.has(path) || blame.size < maxPaths) blame.set(path, blameOf(event))
          last = { version: event.version, state: shown }
        })
        return { ...last, blame: Object.fromEntries(blame) }
      },
    },
  }
}

function foldingOf(definition: Aggregate | Projection): Folding | undefined {
  const { name } = definition
  if (definition.kind === 'aggregate') {
    const { snapshotForm } = definition
    const isPlain = snapshotForm === 'plain' || snapshotForm === 'none'
    return {
      ...{ name, kind: 'aggregate', initial: () => definition.initial() },
      fold: (state, event) => definition.evolve(state, event),
      show: state => copyOf(isPlain ? state : snapshotForm.write(state)),
    }
  }
  const { fold, filter } = definition
  if (fold === undefined) return undefined
  const types = filter.types === undefined ? undefined : new Set<string>(filter.types)
  return {
    ...{ name, kind: 'projection', initial: () => undefined, show: copyOf },
    fold: (state, event) => (types === undefined || types.has(event.type) ? fold(state, event) : state),
  }
}

function copyOf(state: unknown): unknown {
  return state === undefined ? null : (JSON.parse(JSON.stringify(state) ?? 'null') as unknown)
}

async function foldEach(
  log: Log,
  folding: Folding,
  stream: string,
  { to, until }: { to?: number | undefined; until?: Date | undefined },
  take: (state: unknown, event: RecordedEvent) => unknown,
): Promise<unknown> {
  let state = folding.initial()
  let count = 0
  for await (const event of readStream(log, log.database, stream, { to, until, includeArchived: true })) {
    if (++count > maxEvents)
      throw new InvalidOption({
        option: 'version',
        reason: `Stream "${stream}" has more than ${maxEvents} events up to there, which are too many to fold for a look.`,
      })
    state = folding.fold(state, event)
    if (take(state, event) === 'enough') break
  }
  return state
}

function stepOf(event: RecordedEvent, before: unknown, state: unknown): StateStep {
  const { id, type, position, createdAt, userId, version } = event
  const changed = differences(before, state).map(({ path }) => path)
  return { version, state, event: { id, type, position, createdAt, userId }, changed }
}

function blameOf({ id, type, version, position, createdAt, userId }: RecordedEvent): Blame {
  return { eventId: id, type, version, position, createdAt, userId }
}

interface PathDifference {
  readonly path: string
  /** Whether the value is no longer there. */
  readonly isGone: boolean
}

/** The paths of values that differ; of objects and arrays, those inside of them. Arrays are compared by index. */
function differences(before: unknown, now: unknown, keys: readonly PropertyKey[] = []): PathDifference[] {
  if (Object.is(before, now)) return []
  const path = pathText('', keys)
  const inBefore = childrenOf(before)
  const inNow = childrenOf(now)
  if (inNow === undefined && inBefore === undefined) return [{ path, isGone: now === undefined }]
  const names = new Set([...(inBefore?.keys() ?? []), ...(inNow?.keys() ?? [])])
  const inside = [...names].flatMap(name => differences(inBefore?.get(name), inNow?.get(name), [...keys, name]))
  const isEmptied = inNow !== undefined && inNow.size === 0 && (inBefore === undefined || inBefore.size > 0)
  const isReplaced = (inNow === undefined) !== (inBefore === undefined)
  if (isEmptied || (isReplaced && inNow === undefined)) inside.push({ path, isGone: now === undefined })
  if (isReplaced && inNow !== undefined && before !== undefined) inside.push({ path, isGone: inNow.size > 0 })
  return inside
}

/** The fields of an object, or the items of an array. */
function childrenOf(value: unknown): Map<PropertyKey, unknown> | undefined {
  if (Array.isArray(value)) return new Map(value.entries())
  return typeof value === 'object' && value !== null ? new Map(Object.entries(value)) : undefined
}
