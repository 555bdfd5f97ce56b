/** What needs a person, from the figures: in the order of urgency, at most twenty. */
import type { Figures, Need } from './contract.ts'
import type { ApiStore } from './source.ts'

const maxNeeds = 20
/** A consumer that is further behind is shown. */
const behindSeconds = 60

export async function readNeeds(store: ApiStore, figures: Figures): Promise<Need[]> {
  const needs: Need[] = []
  const { settled, head, heldBackBy } = await store.events.settled()
  if (settled < head && heldBackBy.length > 0) {
    const message = `The log is settled up to ${settled} of ${head}: an open transaction has appended.`
    needs.push({ kind: 'heldBack', level: 'warning', name: undefined, message })
  }
  for (const { name, isPaused, state, lagSeconds, isLeased, deadLetters } of figures.consumers) {
    const add = (kind: Need['kind'], level: Need['level'], message: string): void => {
      needs.push({ kind, level, name, message })
    }
    if (deadLetters > 0) add('deadLetters', 'error', `"${name}" has ${deadLetters} open dead letters.`)
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
  const ofHandlers = figures.deadLetters.count - figures.consumers.reduce((sum, each) => sum + each.deadLetters, 0)
  if (ofHandlers > 0)
    needs.push({
      kind: 'deadLetters',
      level: 'error',
      name: undefined,
      message: `Handlers have ${ofHandlers} open dead letters.`,
    })
  if (figures.executions.parked > 0)
    needs.push({
      kind: 'consumerStopped',
      level: 'error',
      name: undefined,
      message: `${figures.executions.parked} executions are parked and wait for an operator.`,
    })
  return needs.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning')).slice(0, maxNeeds)
}
