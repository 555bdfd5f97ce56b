/** Heap per tenant that a process uses, measured after garbage collection. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import { orderEvent } from '../workloads/orders.ts'

export interface TenantHeapInput {
  readonly url: string
  readonly tenants: readonly string[]
}

export interface TenantHeapAnswer {
  /** In bytes. */
  readonly heapPerTenant: number
}

answer<TenantHeapInput>(async ({ url, tenants: [first, ...others] }): Promise<TenantHeapAnswer> => {
  await using store = await openStore({ url, tenancy: 'schema' })
  const use = (tenant: string): Promise<unknown> => store.tenant(tenant).events.append('order-1', [orderEvent(1)])
  // The first tenant loads and connects everything that tenants share.
  await use(first!)
  const before = heap()
  for (const tenant of others) await use(tenant)
  return { heapPerTenant: (heap() - before) / others.length }
})

function heap(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  collect()
  return process.memoryUsage().heapUsed
}
