/**
 * A bank: 50 transfers at the same time between a few accounts, and large ones that someone has to approve.
 *
 *     npx tsx examples/bank/bank.ts
 *
 * It stores its data in ./.rillflow. A process that is killed while transfers wait for their approval loses none: the next
 * one continues them, and no money is moved twice.
 */
import { defineAggregate, defineEvents, defineHandler, openStore } from 'rillflow'

type BankEvent =
  | { type: 'Deposited'; data: { cents: number } }
  | { type: 'Withdrawn'; data: { cents: number } }
  | { type: 'TransferAsked'; data: Transfer }
  | { type: 'TransferApproved'; data: { by: string } }
  | { type: 'TransferDone'; data: Transfer }

interface Transfer {
  from: string
  to: string
  cents: number
}

const events = defineEvents<BankEvent>()

const Account = defineAggregate('account', {
  events,
  initial: () => ({ cents: 0 }),
  evolve: {
    Deposited: (account, { data }) => ({ cents: account.cents + data.cents }),
    Withdrawn: (account, { data }) => ({ cents: account.cents - data.cents }),
  },
  decide(change: number, { cents }) {
    if (cents + change < 0) throw new Error('there is not enough money in the account')
    return change < 0 ? { type: 'Withdrawn', data: { cents: -change } } : { type: 'Deposited', data: { cents: change } }
  },
})

/** A large transfer waits for a person, for hours if need be and in whatever process. Then it moves the money once. */
const transfer = defineHandler('transfer', {
  events,
  on: 'TransferAsked',
  async run({ data }, { waitForEvent, step, emit, executionId }) {
    if (data.cents >= 100_000) await waitForEvent('TransferApproved')
    await step('move', () => move(data, executionId))
    return emit('TransferDone', data)
  },
})

const store = await openStore({ events, aggregates: [Account], handlers: [transfer] })

/** Both accounts change, or neither. A conflict with another transfer is decided again. */
async function move({ from, to, cents }: Transfer, idempotencyKey?: string): Promise<void> {
  await store.handle(
    async session => {
      const [payer, payee] = [await session.fetchForWriting(Account, from), await session.fetchForWriting(Account, to)]
      payer.decide(-cents)
      payee.decide(cents)
    },
    { idempotencyKey },
  )
}

async function total(): Promise<number> {
  const accounts = (await store.streams.list({ category: 'account' })).items
  const states = await Promise.all(accounts.map(({ stream }) => store.aggregates(Account).fetchLatest(stream)))
  return states.reduce((sum, state) => sum + (state?.cents ?? 0), 0)
}

const names = ['account-ada', 'account-bo', 'account-cleo', 'account-dev']
if ((await store.events.head()) === 0) for (const name of names) await store.handle(Account, name, 500_000)

const small = Array.from({ length: 50 }, (_, n) => ({
  from: names[n % 4]!,
  to: names[(n + 1 + (n % 3)) % 4]!,
  cents: 100,
}))
await Promise.all(small.map(each => move(each)))
console.log(`50 transfers at once; the bank has ${await total()} cents`)

const large = { from: 'account-ada', to: 'account-bo', cents: 100_000 }
const asked = await store.workflows.publish('TransferAsked', large, { idempotencyKey: 'rent-of-may' })
await store.start()
if (process.argv.includes('--wait')) {
  await asked.waitUntilSettled({ timeoutMs: 1_000 }).catch(() => {})
  console.log('The large transfer waits for its approval.')
  await new Promise(() => setInterval(() => {}, 60_000)) // until the process is killed
}

await asked.signal('TransferApproved', { by: 'Ms Teller' })
await asked.waitForEvent('TransferDone')
console.log(`Ada has ${(await store.aggregates(Account).fetchLatest('account-ada'))?.cents} cents after the large one`)
console.log(`The bank has ${await total()} cents`)
await store.close()
