/** Moving a tenant between two servers while it is written to, against COPY without writers. */
import pg from 'pg'
import { openStore, type TenantedStore } from '../harness/rillflow.ts'
import type { Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh } from '../harness/server.ts'
import { copyAcross } from '../peers/copy.ts'
import { storeTables } from '../peers/rillflow-append.ts'
import { orderEvent, orders } from '../workloads/orders.ts'

/** The value is how long no append succeeded, in milliseconds. */
export interface MoveSample extends Sample {
  /** Duration of the whole move. */
  readonly ms: number
  /** The longest time that a caller waited for an append meanwhile. */
  readonly slowest: number
  readonly appends: number
}

export interface Mover extends AsyncDisposable {
  /** Moves the tenant to the other server. */
  move(): Promise<MoveSample>
  /** Copies its events to the other server. */
  copy(): Promise<Sample>
}

const tenant = 'acme'
const prefix = 'moving_'
const writers = 8

export async function openMover(from: BenchServer, to: BenchServer, events: number): Promise<Mover> {
  const servers = { one: from.url, two: to.url }
  const store = await openStore({
    ...{ migrate: true, tenantPrefix: prefix },
    tenancy: { directory: from.url, servers },
  })
  await store.tenants.ensure(tenant, { server: 'one' })
  await store.tenant(tenant).events.import(orders(events))
  for (const server of [from, to]) await (await server.openStore()).close()
  let [source, target] = [from, to]
  let stored = events
  return {
    async move() {
      const started = performance.now()
      let isOver = false
      const written = Promise.all(Array.from({ length: writers }, (_, n) => write(store, `writer-${n}`, () => isOver)))
      const { moved } = await store.tenants.move(tenant, { server: target === to ? 'two' : 'one' })
      const ms = performance.now() - started
      isOver = true
      const waits = (await written).flat()
      stored += waits.length
      ;[source, target] = [target, source]
      const { rows } = await source.admin.query(`select count(*)::integer as found from ${prefix}${tenant}.events`)
      if (rows[0].found !== stored) throw new Error(`${rows[0].found} events were moved, and ${stored} stored`)
      return { value: moved!.pausedMs, ms, slowest: Math.max(...waits), appends: waits.length }
    },
    async copy() {
      await startAfresh(target.admin, storeTables)
      const [here, there] = [new pg.Client(source.url), new pg.Client(target.url)]
      await Promise.all([here.connect(), there.connect()])
      const started = performance.now()
      await copyAcross(here, `${prefix}${tenant}`, there)
      const value = performance.now() - started
      await Promise.all([here.end(), there.end()])
      return { value }
    },
    [Symbol.asyncDispose]: () => store.close(),
  }
}

/** Appends until `isOver`, and returns the time of each append. One that is refused because of the move is repeated. */
async function write(store: TenantedStore, stream: string, isOver: () => boolean): Promise<number[]> {
  const waits: number[] = []
  while (!isOver()) {
    const started = performance.now()
    await appendOnce(store, stream, waits.length)
    waits.push(performance.now() - started)
  }
  return waits
}

async function appendOnce(store: TenantedStore, stream: string, n: number): Promise<void> {
  for (;;)
    try {
      await store.tenant(tenant).events.append(stream, [orderEvent(n)])
      return
    } catch (error) {
      if ((error as { code?: string }).code !== 'tenant_moving') throw error
    }
}
