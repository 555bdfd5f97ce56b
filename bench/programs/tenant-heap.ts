/** How much heap the tenants take that a process uses, when what is not needed has been collected. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import { orderEvent } from '../workloads/orders.ts'

export interface TenantsInput {
  readonly url: string
  readonly tenants: readonly string[]
}

export interface TenantsAnswer {
  /** In bytes. */
  readonly heapPerTenant: number
}

answer<TenantsInput>(async ({ url, tenants: [first, ...others] }): Promise<TenantsAnswer> => {
  await using store = await openStore({ url, tenancy: 'schema' })
  const use = (tenant: string): Promise<unknown> => store.tenant(tenant).events.append('order-1', [orderEvent(1)])
  // What all tenants share is loaded and connected with the first one.
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
