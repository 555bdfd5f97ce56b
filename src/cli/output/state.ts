/** The state, the lag and the last error of a consumer, in the words and colours that all commands use. */
import type { ConsumerStatus, StoredError } from '../../consumers/status.ts'
import { digits, duration } from './amount.ts'
import type { Colours } from './output.ts'

export function stateOf(status: ConsumerStatus): string {
  if (status.progressedAt === undefined) return 'new'
  if (status.isPaused) return 'paused'
  if (status.state !== 'active') return status.state
  if (status.isBeyondHead) return 'beyond the log'
  if (status.isOrphaned) return 'orphaned'
  if (status.attempts > 0) return 'failing'
  return status.lease === undefined ? 'stopped' : 'running'
}

/** Also for the states of workflows, executions and dead letters. */
export function paintState(state: string, colour: Colours): (text: string) => string {
  if (['failing', 'failed', 'compensationFailed', 'beyond the log'].includes(state)) return colour.red
  if (['paused', 'rebuilding', 'waiting', 'parked', 'orphaned'].includes(state)) return colour.yellow
  if (state === 'running' || state === 'inline' || state === 'open') return colour.green
  return colour.dim
}

/** `1,204 (35s)`, or `0`. */
export function lagOf({ lag, lagSeconds }: { lag: number; lagSeconds: number }): string {
  return lag === 0 ? '0' : `${digits(lag)} (${duration(lagSeconds * 1000)})`
}

export function errorLine(error: StoredError | undefined): string | undefined {
  if (error === undefined) return undefined
  const position = error.position === undefined ? '' : ` at position ${error.position}`
  return `${error.name}: ${error.message}${position}`
}
