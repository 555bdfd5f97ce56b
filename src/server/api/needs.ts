/** The matters that need a person, from the figures: in the order of urgency, at most twenty. */
import { counted } from '../../core/core.ts'
import type { LogState } from '../../events/events.ts'
import type { Figures, Need } from './contract.ts'

const maxNeeds = 20
/** A consumer that is further behind is shown. */
const behindSeconds = 60

/** `log` is undefined if it is settled up to its head. */
export function readNeeds(log: LogState | undefined, figures: Figures): Need[] {
  const needs: Need[] = []
  if (log !== undefined && log.settled < log.head && log.heldBackBy.length > 0) {
    const message = `The log is settled up to ${log.settled} of ${log.head}: an open transaction has appended.`
    needs.push({ kind: 'heldBack', level: 'warning', name: undefined, message })
  }
  for (const { name, isPaused, state, lagSeconds, isLeased, deadLetters } of figures.consumers) {
    const add = (kind: Need['kind'], level: Need['level'], message: string): void => {
      needs.push({ kind, level, name, message })
    }
    if (deadLetters > 0) add('deadLetters', 'error', `"${name}" has ${counted(deadLetters, 'open dead letter')}.`)
    if (isPaused) add('consumerPaused', 'warning', `"${name}" is paused.`)
    else if (state === 'active' && lagSeconds > behindSeconds)
      add(
        isLeased ? 'consumerBehind' : 'notRunning',
        isLeased ? 'warning' : 'error',
        isLeased
          ? `"${name}" is ${Math.round(lagSeconds)} s behind.`
          : `"${name}" is ${Math.round(lagSeconds)} s behind, and no runner runs it.`,
      )
  }
  for (const { handler, count } of figures.deadLetters.ofHandlers)
    needs.push({
      kind: 'deadLetters',
      level: 'error',
      name: handler,
      message: `"${handler}" has ${counted(count, 'open dead letter')}.`,
    })
  if (figures.executions.parked > 0)
    needs.push({
      kind: 'consumerStopped',
      level: 'error',
      name: undefined,
      message: `${counted(figures.executions.parked, 'execution is parked and waits', 'executions are parked and wait')} for an operator.`,
    })
  return needs.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning')).slice(0, maxNeeds)
}
