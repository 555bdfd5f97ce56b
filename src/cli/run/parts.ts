/** What there is to run, of one store. */
import type { Snapshotter } from '../../aggregates/snapshotter.ts'
import type { Opened } from '../command.ts'
import { count } from '../output/amount.ts'

export interface Parts {
  /** Everything there is to run, for people. */
  readonly all: readonly string[]
  readonly hasWork: boolean
  readonly snapshotters: readonly Snapshotter[]
}

export async function partsOf(
  { store, config }: Pick<Opened, 'store' | 'config'>,
  snapshotters: readonly Snapshotter[],
): Promise<Parts> {
  const projections = (await store.projections.list()).flatMap(each => (each.isRegistered ? [each.name] : []))
  await store.workflows.register()
  const schedules = (await store.workflows.schedules.list()).flatMap(each => (each.isHere ? [each.name] : []))
  const handlers = store.workflows.registered()
  const groups: [string, readonly string[]][] = [
    ['projection', projections],
    ['snapshotter', snapshotters.map(each => each.name)],
    ['handler', handlers],
    ['schedule', schedules],
    ['subscription', Object.keys(config.subscriptions ?? {})],
  ]
  const all = groups
    .filter(([, names]) => names.length > 0)
    .map(([what, names]) => `${count(names.length, what)} (${names.join(', ')})`)
  return { all, hasWork: handlers.length + schedules.length > 0, snapshotters }
}
