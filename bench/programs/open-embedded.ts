/** Opens a new embedded store, and measures the CPU time of this process for it. */
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'

export interface OpenEmbeddedAnswer {
  /** Of a core, in milliseconds. */
  readonly cpuMs: number
}

answer<{ folder: string }>(async ({ folder }): Promise<OpenEmbeddedAnswer> => {
  const before = process.cpuUsage()
  await using store = await openStore({ folder })
  const { user, system } = process.cpuUsage(before)
  await store.events.append('order-1', { type: 'OrderPlaced', data: {} })
  return { cpuMs: (user + system) / 1000 }
})
