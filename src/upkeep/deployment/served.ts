/** Handlers, schedules and consumers that are stored and that no process would run once only this program is deployed. */
import { everyItem } from '../../core/page.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import { dispatcherName } from '../../workflows/routes.ts'
import type { Check, FoundProblem } from '../doctor/doctor.ts'
import type { DeploymentParts } from './deployment.ts'

export function checkServed({ workflows, consumers }: DeploymentParts): Check[] {
  return [
    {
      name: 'handlers.code',
      ok: 'This program has the code of every stored handler that has work or is given events.',
      async find() {
        const stored = await everyItem(page => workflows.handlers.list(page))
        const newest = newestOf(stored)
        const missing = stored.filter(({ handler, version }) => !workflows.versionsOf(handler).includes(version))
        return missing.flatMap(each => ofHandler(each, newest.get(each.handler) === each, workflows))
      },
    },
    {
      name: 'schedules.code',
      ok: 'This program has the code of every stored schedule.',
      async find() {
        const stored = await everyItem(page => workflows.schedules.list(page))
        return stored
          .filter(({ isHere, state }) => !isHere && state !== 'done')
          .map(({ name, nextAt }) => ({
            level: 'error',
            message: `No process would run schedule "${name}"${nextAt === undefined ? '' : `, which is due at ${nextAt.toISOString()}`}.`,
            fix: `rillflow schedules delete ${name}`,
          }))
      },
    },
    {
      name: 'consumers.code',
      ok: 'This program has the code of every stored consumer.',
      async find() {
        const stored = await everyItem(page => consumers.list(page))
        return stored
          .filter(({ isRegistered, name }) => !isRegistered && name !== dispatcherName)
          .map(({ name, kind, lag }) => ({
            level: 'warning',
            message: `No process would run the ${kind} "${name}", which is ${lag} positions behind the log.`,
            fix: `If it is no longer needed: rillflow consumers remove ${name}`,
          }))
      },
    },
  ]
}

/** Of each handler the version that is given new events. */
function newestOf(stored: readonly HandlerDescription[]): Map<string, HandlerDescription> {
  const newest = new Map<string, HandlerDescription>()
  for (const each of stored) {
    if (each.retiredAt !== undefined) continue
    const known = newest.get(each.handler)
    if (known === undefined || known.version < each.version) newest.set(each.handler, each)
  }
  return newest
}

function ofHandler(
  { handler, version, kind, open, types }: HandlerDescription,
  isGivenEvents: boolean,
  { versionsOf }: Pick<DeploymentParts['workflows'], 'versionsOf'>,
): FoundProblem[] {
  const count = Object.values(open).reduce((sum, each) => sum + each, 0)
  // Its next version is deployed: from then on it is given the events.
  const isReplaced = versionsOf(handler).some(each => each > version)
  const isServed = !isGivenEvents || isReplaced || kind === 'undo'
  if (count === 0 && isServed) return []
  const what = kind === 'undo' ? 'undo' : 'handler'
  const work = count === 0 ? '' : ` It has ${count === 1 ? 'one open execution' : `${count} open executions`}.`
  const events = isServed ? '' : ` It is given ${types === undefined ? 'all events' : types.join(', ')}.`
  const keep = `keep version ${version} of its code until its open executions have ended`
  return [
    {
      level: 'error',
      message: `No process would run ${what} "${handler}" version ${version}.${work}${events}`,
      fix: isServed ? keep : `${count === 0 ? '' : `${keep}; then `}rillflow handlers retire ${handler}`,
    },
  ]
}
