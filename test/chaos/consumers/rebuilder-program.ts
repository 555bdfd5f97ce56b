/**
 * The program of a process that runs a projection with its own table, and rebuilds it on request. It reports when a
 * rebuild has begun to apply events, and when it has ended.
 */

import { fileURLToPath } from 'node:url'
import { defineProjection } from '../../../src/projections/projection.ts'
import { openStore } from '../../../src/store.ts'

export interface RebuilderOptions {
  readonly url: string
  readonly schema: string
  readonly leaseMs: number
}

export type Message = 'ready' | 'begun' | 'rebuilt' | { readonly error: string }

/** A row per event: one that is applied twice breaks the key, one that is not is missing. */
export const sales = defineProjection('sales', {
  tables: { sales: { columns: { position: 'bigint', stream: 'text' }, primaryKey: ['position'] } },
  batchSize: 50,
  // Also the lease of its rebuilds: another process continues one only after it has expired.
  leaseMs: 5_000,
  on: {
    '*': (event, ctx) =>
      ctx.tx.query(`insert into ${ctx.table('sales')} (position, stream) values ($1, $2)`, [
        event.position,
        event.stream,
      ]),
  },
})

async function start({ url, schema, leaseMs }: RebuilderOptions): Promise<void> {
  const store = await openStore({ url, schema, channel: schema, migrate: true, maxConnections: 6 })
  const say = (message: Message): void => void process.send!(message)
  await store.projections.register(sales)
  await store.daemon({ leaseMs }).start()
  process.on('message', () => {
    let hasBegun = false
    const onProgress = (): void => {
      if (!hasBegun) say('begun')
      hasBegun = true
    }
    store.projections.rebuild('sales', { onProgress }).then(
      () => say('rebuilt'),
      error => say({ error: (error as Error).stack ?? String(error) }),
    )
  })
  say('ready')
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.on('disconnect', () => process.exit())
  process.once('message', (options: RebuilderOptions) => {
    start(options).catch(error => process.send!({ error: (error as Error).stack }))
  })
}
