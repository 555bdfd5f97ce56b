/**
 * Upcasting: events of an old shape read as events of the new one, while the log stays as it is.
 *
 * A step leads from (type, version) to (type, version); `'*'` as the version is any. Steps are chained until none
 * matches:
 *
 *   OrderCreated v1 ──rename──► OrderPlaced v1 ──► OrderPlaced v2 ──► OrderPlaced v3      v3 is what readers see
 *
 * - The exact step is taken before the wildcard. A wildcard that stays in its type is for the versions below its `to`
 *   only, so an event that is already in the new shape is left alone.
 * - The writer states the version (`currentVersion`), and at that version no step matches: new events pass untouched.
 * - There is at most one step out of a (type, version), so a chain is a path, never a tree; that it ends is checked
 *   when the steps are put together (`UpcasterCycle`), so no wildcard is taken twice for one event.
 * - A function that throws, or returns nothing, is an error of the read (`UpcasterFailed`): an event is never passed on
 *   in a shape its reader does not expect.
 *
 * One promise for the whole chain, and only if a function gave one: an event without a step costs one map lookup.
 */

import { type Awaitable, isPromise } from '../../core/core.ts'
import type { Definition } from '../../core/definition.ts'
import { checkDefinition } from '../../core/definition.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import type { RecordedEvent } from '../definition.ts'
import { UpcasterCycle, UpcasterFailed } from '../errors.ts'
import { reshapeEvent } from './rows.ts'

/**
 * One step: `defineUpcaster('OrderPlaced', { from: 1, to: 2, run: data => ({ ...data, currency: 'EUR' }) })`.
 *
 * @example
 * ```ts
 * const inCents = defineUpcaster('OrderPlaced', {
 *   from: 1,
 *   to: 2,
 *   run: (old: { customer: string; euros: number }) => ({ customer: old.customer, cents: old.euros * 100 }),
 * })
 * ```
 */
export function defineUpcaster<Before, After>(type: string, definition: UpcasterDefinition<Before, After>): Upcaster {
  checkDefinition('defineUpcaster', type, definition)
  const what = `The upcaster of ${type}`
  refuseUnknownOptions(what, definition, ['from', 'to', 'toType', 'run'])
  const { from, to, toType = type, run } = definition
  checkName('Event type', type)
  checkName('Event type', toType)
  if (from !== '*') checkVersion(type, 'from', from)
  checkVersion(type, 'to', to)
  if (typeof run !== 'function')
    throw new InvalidOption({
      option: 'run',
      reason: `${what} has no function to run: "run" is ${describe(run)}. Give it as a field: defineUpcaster('${type}', { …, run: data => … }).`,
    })
  return Object.freeze({ kind: 'upcaster', name: type, type, from, toType, to, run: run as Upcaster['run'] })
}

export interface UpcasterDefinition<Before, After> {
  /** The version it takes, or `'*'` for any that has no step of its own. */
  readonly from: number | '*'
  /** The version it gives. */
  readonly to: number
  /** The type it gives. Default: the type it takes. */
  readonly toType?: string | undefined
  /** The data of the new shape, from that of the old one. */
  run(data: Before, event: RecordedEvent): Awaitable<After>
}

/** An upcaster, as it was defined. */
export interface Upcaster extends Definition<'upcaster'> {
  readonly type: string
  readonly from: number | '*'
  readonly toType: string
  readonly to: number
  run(data: unknown, event: RecordedEvent): Awaitable<unknown>
}

export function upcasters(steps: readonly Upcaster[]): Upcasters {
  const byType = indexed(steps)
  refuseCycles(steps, byType)
  const types = [...new Set(steps.flatMap(step => [step.type, step.toType]))]
  const current = new Map(types.map(type => [type, currentVersion(steps, byType, type)]))
  const ends = new Map(types.map(type => [type, endsOf(byType, type)]))

  return {
    apply: event => (byType.has(event.type) ? applyFrom(byType, event) : event),
    currentVersion: type => current.get(type) ?? 1,
    sourcesOf: type => (ends.has(type) ? types.filter(stored => ends.get(stored)!.has(type)) : [type]),
    path: (type, schemaVersion) => pathFrom(byType, { type, schemaVersion }),
    describe: () => steps.map(({ type, from, toType, to }) => ({ type, from, toType, to })),
  }
}

export interface Upcasters {
  /** The event in the shape readers expect: itself if no step matches, a promise only if a step's function gave one. */
  apply(event: RecordedEvent): Awaitable<RecordedEvent>
  /** The version to write new events of the type with: the highest that no step leads on from, 1 if there are none. */
  currentVersion(type: string): number
  /** The stored types whose events can be read as this type: itself too, unless it always becomes another. */
  sourcesOf(type: string): string[]
  /** Every shape an event of this type and version goes through, itself first. */
  path(type: string, schemaVersion: number): Shape[]
  /** The steps, in the order they were given. */
  describe(): StepDescription[]
}

export interface Shape {
  readonly type: string
  readonly schemaVersion: number
}

export type StepDescription = Omit<Upcaster, 'run' | keyof Definition>

type Steps = ReadonlyMap<string, ReadonlyMap<number | '*', Upcaster>>

function checkVersion(type: string, which: 'from' | 'to', version: number): void {
  if (Number.isInteger(version) && version >= 1 && version < 2 ** 31) return
  const wanted = which === 'from' ? "a whole number from 1 on, or '*'" : 'a whole number from 1 on'
  throw new InvalidOption({
    option: which,
    reason: `The option "${which}" of an upcaster of ${type} is ${describe(version)}. It must be ${wanted}.`,
  })
}

function indexed(steps: readonly Upcaster[]): Steps {
  const byType = new Map<string, Map<number | '*', Upcaster>>()
  for (const step of steps) {
    const byVersion = byType.get(step.type) ?? new Map<number | '*', Upcaster>()
    if (byVersion.has(step.from)) {
      const reason = `There are two upcasters from ${step.type} version ${step.from}. Remove one of them.`
      throw new InvalidOption({ option: 'upcasters', reason })
    }
    byType.set(step.type, byVersion.set(step.from, step))
  }
  return byType
}

/** A cycle consists of targets, so it is found by walking on from each of them. */
function refuseCycles(steps: readonly Upcaster[], byType: Steps): void {
  for (const step of steps) {
    const walked: string[] = []
    for (let next: Upcaster | undefined = step; next !== undefined; next = match(byType, targetOf(next))) {
      const name = nameOf(targetOf(next))
      const start = walked.indexOf(name)
      walked.push(name)
      if (start >= 0) throw new UpcasterCycle({ path: walked.slice(start) })
    }
  }
}

function match(byType: Steps, shape: Shape): Upcaster | undefined {
  const byVersion = byType.get(shape.type)
  if (byVersion === undefined) return undefined
  const exact = byVersion.get(shape.schemaVersion)
  if (exact !== undefined) return exact
  const any = byVersion.get('*')
  return any === undefined || (any.toType === any.type && shape.schemaVersion >= any.to) ? undefined : any
}

function targetOf(step: Upcaster): Shape {
  return { type: step.toType, schemaVersion: step.to }
}

function nameOf(shape: Shape): string {
  return `${shape.type} v${shape.schemaVersion}`
}

function applyFrom(byType: Steps, start: RecordedEvent): Awaitable<RecordedEvent> {
  let event = start
  for (;;) {
    const step = match(byType, event)
    if (step === undefined) return event
    const changed = take(step, event)
    if (isPromise(changed)) return changed.then(late => applyFrom(byType, late))
    event = changed
  }
}

function take(step: Upcaster, event: RecordedEvent): Awaitable<RecordedEvent> {
  const fail = (cause: unknown): never => {
    throw new UpcasterFailed({ type: event.type, schemaVersion: event.schemaVersion, eventId: event.id }, cause)
  }
  try {
    const data = step.run(event.data, event)
    return isPromise(data) ? Promise.resolve(data).then(reshape).catch(fail) : reshape(data)
  } catch (cause) {
    return fail(cause)
  }

  function reshape(data: unknown): RecordedEvent {
    if (data === undefined) throw new TypeError('The function returned nothing. It must return the new data.')
    return reshapeEvent(event, step.toType, step.to, data)
  }
}

function pathFrom(byType: Steps, start: Shape): Shape[] {
  const path = [start]
  for (let step = match(byType, start); step !== undefined; step = match(byType, targetOf(step))) {
    path.push(targetOf(step))
  }
  return path
}

function currentVersion(steps: readonly Upcaster[], byType: Steps, type: string): number {
  const reached = [1, ...steps.filter(step => step.toType === type).map(step => step.to)]
  const final = reached.filter(schemaVersion => match(byType, { type, schemaVersion }) === undefined)
  return Math.max(...(final.length > 0 ? final : reached))
}

/** The types that stored events of this type end as. Between the versions that steps name, all versions behave the same, so one neighbour on either side stands for the rest.
 */
function endsOf(byType: Steps, type: string): Set<string> {
  const named = [...(byType.get(type)?.values() ?? [])].flatMap(({ from, to }) => (from === '*' ? [to] : [from, to]))
  const versions = [1, ...named.flatMap(version => [version - 1, version, version + 1])].filter(version => version >= 1)
  return new Set(versions.map(schemaVersion => pathFrom(byType, { type, schemaVersion }).at(-1)!.type))
}
