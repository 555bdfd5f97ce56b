/** A worker of the configuration's handlers. */
import { onAbort } from '../../core/lifecycle.ts'
import type { Invocation, Opened } from '../command.ts'
import { count } from '../output/amount.ts'
import { NothingRegistered } from '../usage.ts'

export const workerOptions = {
  concurrency: {
    kind: 'whole',
    value: 'COUNT',
    default: 16,
    env: 'RILLFLOW_CONCURRENCY',
    summary: 'The most handlers that run at once',
  },
  node: {
    kind: 'text',
    value: 'NAME',
    env: 'RILLFLOW_NODE',
    summary: 'A name that stays the same when it is started again',
  },
} as const

export interface Work extends Pick<Invocation, 'out' | 'config' | 'signal'> {
  readonly options: { readonly concurrency: number; readonly node: string | undefined }
}

export async function workUntil({ store }: Opened, { out, config, options, signal }: Work): Promise<void> {
  const { concurrency, node } = options
  const handlers = store.workflows.registered()
  if (handlers.length === 0) throw new NothingRegistered({ what: 'handlers', path: (await config())?.path })
  const worker = store.workflows.worker({ concurrency, node })
  await worker.start()
  out.note(`Running ${count(handlers.length, 'handler')}: ${handlers.join(', ')}. Ctrl-C ends it.`)
  await new Promise<void>(resolve => onAbort(signal, resolve))
  await worker.stop()
}
