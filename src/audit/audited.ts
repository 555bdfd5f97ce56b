/**
 * Records calls of operators. An API is wrapped as a whole, by a list of its verbs with the names of their arguments, so the
 * code of the calls knows nothing of the audit:
 *
 *     audited(audit, 'consumers', administration, { pause: ['consumer'], reset: ['consumer', 'position'] })
 *
 * The first argument is the target, or the option `of` where there are only options. The other arguments and the options
 * are the parameters.
 */
import type { Executor } from '../database/database.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { AuditedAction, OpenAudit } from './audit.ts'

export type Verbs<Api> = { readonly [Verb in keyof Api]?: readonly string[] }

export interface AuditedParts {
  readonly audit: OpenAudit
  executorOf(tx: AnyTransaction): Executor
}

export function audited<Api extends object>(
  { audit, executorOf }: AuditedParts,
  noun: string,
  api: Api,
  verbs: Verbs<Api>,
): Api {
  const wrapped = Object.entries(verbs as Record<string, readonly string[]>).map(([verb, names]) => {
    const call = (api as Record<string, Call>)[verb]!
    const recorded: Call = async (...given) => {
      const options = given.at(-1) as { readonly tx?: AnyTransaction; readonly dryRun?: boolean } | undefined
      const work = async (): Promise<unknown> => call.apply(api, given)
      if (options?.dryRun === true) return work()
      const action = actionOf(`${noun}.${verb}`, names, given)
      if (options?.tx === undefined) return audit.record(action, work)
      const result = await work()
      await audit.recordDone(action, executorOf(options.tx), result)
      return result
    }
    return [verb, recorded] as const
  })
  return { ...api, ...Object.fromEntries(wrapped) }
}

type Call = (...given: unknown[]) => unknown

/**
 * Records a call that may make the table of the audit itself: once it has ended, if it has failed or `isWorth` says that it
 * has changed anything.
 */
export async function recordedAfter<T>(
  audit: OpenAudit,
  executor: Executor,
  action: AuditedAction,
  { work, isWorth }: { work(): Promise<T>; isWorth(result: T): boolean },
): Promise<T> {
  let result: T
  try {
    result = await work()
  } catch (error) {
    await audit.recordFailed(action, error)
    throw error
  }
  if (isWorth(result)) await audit.recordDone(action, executor, result)
  return result
}

/** `names`: of the arguments before the options, the target first. */
function actionOf(action: string, names: readonly string[], given: readonly unknown[]): AuditedAction {
  const parameters: Record<string, unknown> = {}
  for (const [at, name] of names.entries()) if (at > 0) parameters[name] = given[at]
  for (const options of given.slice(names.length))
    if (typeof options === 'object' && options !== null) Object.assign(parameters, options)
  return { action, target: targetOf(names.length === 0 ? parameters.of : given[0]), parameters }
}

/** The name of a definition; of the owner of dead letters, of its consumer or handler. */
function targetOf(given: unknown): string | undefined {
  if (typeof given === 'string') return given
  if (typeof given !== 'object' || given === null) return undefined
  const { name, consumer, handler } = given as { name?: unknown; consumer?: unknown; handler?: unknown }
  return [name, consumer, handler].find(each => typeof each === 'string')
}
