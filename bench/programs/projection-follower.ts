/** A projection that follows the log in its own process, and reports when each event was applied. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { openStore } from '../harness/rillflow.ts'
import { applyByHand } from '../peers/upserts.ts'
import { machineMs, onApplied, startOrders } from '../rigs/orders-projection.ts'

export interface FollowerInput {
  readonly contestant: 'ours' | 'by hand'
  readonly url: string
}

/** Sent after each batch: all events up to `position` are committed at this time of the machine's clock. */
export interface Applied {
  readonly position: number
  /** As `machineMs` gives it. */
  readonly at: number
}

const pollMs = 100

process.once('message', message => void run(message as FollowerInput))

async function run({ contestant, url }: FollowerInput): Promise<void> {
  const stopped = new Promise<void>(resolve => process.once('message', () => resolve()))
  if (contestant === 'ours') await follow(url, stopped)
  else await poll(url, stopped)
  process.disconnect()
}

async function follow(url: string, stopped: Promise<void>): Promise<void> {
  await using store = await openStore({ url, migrate: true })
  onApplied((position, at) => process.send!({ position, at } satisfies Applied))
  await using _daemon = await startOrders(store)
  process.send!('ready')
  await stopped
}

async function poll(url: string, stopped: Promise<void>): Promise<void> {
  const client = new pg.Client(url)
  await client.connect()
  let isOver = false
  void stopped.then(() => {
    isOver = true
  })
  process.send!('ready')
  for (let last = '0'; !isOver; await sleep(pollMs)) {
    const reached = await applyByHand(client, last, () => {})
    if (reached !== last) process.send!({ position: Number(reached), at: machineMs() } satisfies Applied)
    last = reached
  }
  await client.end()
}
