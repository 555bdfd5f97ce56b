/**
 * Appending what is staged, at the version it was decided on. The snapshot that falls due is written in the append's own
 * transaction, between its checks and its positions: it is there if and only if the events are, and as the version is
 * checked under the lock of the stream, its body is what the events up to its version fold to, whoever else writes.
 */
import { isRillflowError } from '../core/errors.ts'
import { type AppendOptions, type AppendParts, appendEvents } from '../events/append/append.ts'
import type { AppendResult } from '../events/append/outcome.ts'
import type { Alongside } from '../events/append/send.ts'
import type { Aggregate } from './aggregate.ts'
import { type LoadParts, loadState, remember } from './load.ts'
import type { Loaded, Staged } from './loaded.ts'
import { freeze, isDue, writeSnapshots } from './snapshot.ts'

export type CommitOptions = Omit<AppendOptions, 'expected'>

export async function commit(
  parts: LoadParts & AppendParts,
  loaded: Loaded,
  options: CommitOptions = {},
): Promise<AppendResult> {
  const { aggregate, stream } = loaded
  const staged = loaded.staged()
  const { events, expected, version, state } = staged
  const snapshot = snapshotOf(parts, aggregate, staged)
  const alongside: Alongside | undefined = snapshot && { names: [], count: 1, write: snapshot }
  const hasOwnIds = events.some(event => event.id !== undefined)
  const [result] = await appendEvents(parts, [{ stream, events, expected }], options, {
    alongside,
    checkIds: hasOwnIds,
  })
  if (result!.repeated) {
    // What was stored under this key was decided by somebody else, on another state perhaps.
    const executor = options.tx === undefined ? parts.log.database : parts.executorOf(options.tx)
    loaded.reset(await loadState(parts, aggregate, stream, executor))
    return result!
  }
  loaded.committed(version)
  const eventId = result!.eventIds.at(-1)
  if (options.tx === undefined && eventId !== undefined) remember(parts, aggregate, stream, { state, version, eventId })
  return result!
}

/** Writes the snapshot that this commit makes due; undefined if it makes none. */
export function snapshotOf({ log }: LoadParts, aggregate: Aggregate, staged: Staged): Alongside['write'] | undefined {
  const { stream, events, expected, version, state } = staged
  // An event of an older shape is read in another one than it was folded in.
  const isCurrent = events.every(event => event.schemaVersion === undefined)
  if (!isDue(aggregate, expected, version) || !isCurrent) return undefined
  try {
    const text = freeze(aggregate, stream, state)
    return async (tx, parts) => {
      const eventId = parts.find(part => part.stream === stream)!.events.at(-1)!.id
      await writeSnapshots(log, tx, aggregate, [{ stream, version, eventId, text }])
    }
  } catch (error) {
    if (!isRillflowError(error, 'snapshot_refused')) throw error
    log.telemetry.count('snapshots_refused_total')
    log.telemetry.log.warn({ schema: log.schema, stream, error }, 'a commit went without the snapshot that was due')
    return undefined
  }
}
