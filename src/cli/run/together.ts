/** A daemon, a worker and the subscriptions of one store, started and drained together. */
import { onAbort } from '../../core/lifecycle.ts'
import type { RunningSubscription } from '../../subscriptions/consume.ts'
import type { Opened } from '../command.ts'
import type { Output } from '../output/output.ts'
import type { Parts } from './parts.ts'

export interface Together {
  /** Ends when a subscription does. */
  readonly ended: readonly Promise<void>[]
  stop(): Promise<void>
}

export interface TogetherOptions {
  readonly out: Output
  readonly concurrency: number
  readonly node?: string | undefined
  readonly standby?: boolean | undefined
}

export async function startTogether(
  opened: Pick<Opened, 'store' | 'config'>,
  { hasWork }: Pick<Parts, 'hasWork'>,
  { out, node, standby, concurrency }: TogetherOptions,
): Promise<Together> {
  const { store } = opened
  const onFailure = (name: string, error: unknown): void => out.note(`${name} has stopped: ${String(error)}`)
  const daemon = store.daemon({ node, standby, onFailure })
  const worker = hasWork ? store.workflows.worker({ concurrency, node }) : undefined
  await daemon.start()
  await worker?.start()
  const subscriptions = startSubscriptions(opened)
  return {
    ended: subscriptions.map(each => each.ended),
    async stop() {
      await Promise.all([daemon.stop(), worker?.stop(), ...subscriptions.map(each => each.stop())])
    },
  }
}

export async function untilEnded({ ended, stop }: Together, signal: AbortSignal): Promise<void> {
  const stopped = new Promise<void>(resolve => onAbort(signal, resolve))
  await Promise.race([stopped, ...ended])
  await stop()
}

export function startSubscriptions({ store, config }: Pick<Opened, 'store' | 'config'>): RunningSubscription[] {
  return Object.entries(config.subscriptions ?? {}).map(([name, options]) => store.subscribe(name, options))
}
