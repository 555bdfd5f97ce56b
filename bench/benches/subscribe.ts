/** Deliveries through `store.subscribe`, against a loop written by hand that stores its checkpoint after each event. */

import pg from 'pg'
import type { Bench } from '../harness/bench.ts'
import { defineSubscription, type Store } from '../harness/rillflow.ts'
import { compare, interleave, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { makeUpsertTables, nextRows, saveCheckpoint } from '../peers/upserts.ts'
import { orders } from '../workloads/orders.ts'

export const bench: Bench = {
  about: 'deliveries per second, from the call to the last event acknowledged; the handler does nothing',
  async run({ quick, report }) {
    const events = quick ? 20_000 : 100_000
    // A contestant that waits for the disk after each event gets fewer events.
    const few = quick ? 2_000 : 10_000
    await using server = await startBenchServer(report)
    await using store = await server.openStore()
    await store.events.import(orders(events))
    await makeUpsertTables(server.admin)
    await server.admin.query('vacuum analyze rillflow.events, rillflow.streams')
    const contestants = [
      { name: 'auto', run: () => iterated(store, 'auto', events) },
      { name: 'manual', run: () => iterated(store, 'manual', events) },
      { name: 'manual, one by one', run: () => iterated(store, 'awaited', few) },
      { name: 'callback', run: () => calledBack(store, 1, events) },
      { name: '4 partitions', run: () => calledBack(store, 4, events) },
      { name: 'by hand', run: () => byHand(server, few) },
    ]
    const before = async (): Promise<void> => {
      await server.admin.query('delete from rillflow.deliveries')
      await server.admin.query('delete from rillflow.consumers')
    }
    const samples = await interleave(contestants, { rounds: quick ? 3 : 5, before })
    const peer = samples.get('by hand')!
    for (const { name } of contestants.slice(0, -1)) {
      const result = compare(samples.get(name)!, peer)
      report.result({
        case: name,
        peerName: 'hand-written',
        peerNote: 'a checkpoint each',
        unit: 'events/s',
        ...result,
      })
    }
    report.table(`subscribe, ${events} events`)
  },
}

async function iterated(store: Store, ack: 'auto' | 'manual' | 'awaited', events: number): Promise<Sample> {
  const started = performance.now()
  const acks: Promise<void>[] = []
  let seen = 0
  for await (const event of store.subscribe('bench', { ack: ack === 'auto' ? 'auto' : 'manual' })) {
    if (ack === 'manual') acks.push(event.ack())
    if (ack === 'awaited') await event.ack()
    if (++seen === events) {
      if (ack === 'auto') await event.ack()
      break
    }
  }
  await Promise.all(acks)
  return rate(events, started)
}

async function calledBack(store: Store, partitions: number, events: number): Promise<Sample> {
  const started = performance.now()
  const stopping = new AbortController()
  let seen = 0
  const subscription = defineSubscription('bench', {
    partitions,
    concurrency: partitions,
    run() {
      if (++seen === events) stopping.abort()
    },
  })
  await store.register(subscription)
  // Stopping saves the checkpoint.
  await store.consumers.run(subscription, { signal: stopping.signal })
  return rate(events, started)
}

async function byHand(server: BenchServer, events: number): Promise<Sample> {
  const client = new pg.Client(server.url)
  await client.connect()
  const started = performance.now()
  let seen = 0
  for (let last = '0'; seen < events; ) {
    for (const { position } of await nextRows(client, last)) {
      await client.query(saveCheckpoint('bench', position))
      last = position
      seen++
    }
  }
  const sample = rate(seen, started)
  await client.end()
  return sample
}

function rate(events: number, started: number): Sample {
  return { value: events / ((performance.now() - started) / 1000) }
}
