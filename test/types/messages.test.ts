/** What the compiler says about common mistakes, and where: at the word that is wrong, with what there is instead. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'

interface Mistake {
  /** A statement with one mistake. */
  code: string
  /** The word that the error is reported at. */
  at: string
  /** What its message says, anywhere in it. */
  says: string
}

const mistakes: Record<string, Mistake> = {
  'an event type of an append that there is not': {
    code: `store.events.append('order-1', { type: 'OrderPlacd', data: { cents: 5 } })`,
    at: 'type',
    says: `Did you mean '"OrderPlaced"'?`,
  },
  'an event type of an append of several that there is not': {
    code: `store.events.append('order-1', [{ type: 'OrderPlacd', data: { cents: 5 } }])`,
    at: 'type',
    says: `Did you mean '"OrderPlaced"'?`,
  },
  'wrong data of an append': {
    code: `store.events.append('order-1', { type: 'OrderPlaced', data: { cents: '5' } })`,
    at: 'cents',
    says: "Type 'string' is not assignable to type 'number'.",
  },
  'wrong data of an append of several': {
    code: `store.events.append('order-1', [{ type: 'OrderPlaced', data: { cents: '5' } }])`,
    at: 'cents',
    says: "Type 'string' is not assignable to type 'number'.",
  },
  'missing data of an append': {
    code: `store.events.append('order-1', { type: 'OrderPlaced', data: {} })`,
    at: 'data',
    says: "Property 'cents' is missing in type '{}' but required in type '{ cents: number; }'.",
  },
  'a field of an append that there is not': {
    code: `store.events.append('order-1', { type: 'OrderPaid', data: { reciept: 'x' } })`,
    at: 'reciept',
    says: "Did you mean to write 'receipt'?",
  },
  'an option of an append that there is not': {
    code: `store.events.append('order-1', { type: 'OrderPaid', data: { receipt: 'x' } }, { expcted: 'empty' })`,
    at: 'expcted',
    says: "Did you mean to write 'expected'?",
  },
  'an event type to publish that there is not': {
    code: `store.workflows.publish('OrderPlacd', { cents: 5 })`,
    at: "'OrderPlacd'",
    says: `Argument of type '"OrderPlacd"' is not assignable to parameter of type '"Order`,
  },
  'wrong data to publish': {
    code: `store.workflows.publish('OrderPlaced', { cents: '5' })`,
    at: 'cents',
    says: "Type 'string' is not assignable to type 'number'.",
  },
  'an event type of a handler that there is not': {
    code: `defineHandler('charge', { events, on: 'OrderPlacd', run: () => undefined })`,
    at: 'on',
    says: `Did you mean '"OrderPlaced"'?`,
  },
  'an event type to emit that there is not': {
    code: `defineHandler('charge', { events, on: 'OrderPlaced', run: (e, { emit }) => emit('OrderPayd', { receipt: 'x' }) })`,
    at: "'OrderPayd'",
    says: `Argument of type '"OrderPayd"' is not assignable to parameter of type '"Order`,
  },
  'an event type to emit that the handler does not name': {
    code: `defineHandler('charge', { events, on: 'OrderPlaced', emits: ['OrderShipped'], run: (e, { emit }) => emit('OrderPaid', { receipt: 'x' }) })`,
    at: "'OrderPaid'",
    says: `Argument of type '"OrderPaid"' is not assignable to parameter of type '"OrderShipped"'.`,
  },
  'wrong data to emit': {
    code: `defineHandler('charge', { events, on: 'OrderPlaced', run: (e, { emit }) => emit('OrderPaid', { receipt: e.data.cents }) })`,
    at: 'receipt',
    says: "Type 'number' is not assignable to type 'string'.",
  },
  'an option of a handler that there is not': {
    code: `defineHandler('charge', { events, on: 'OrderPlaced', retrys: 5, run: () => undefined })`,
    at: 'retrys',
    says: `'retrys' does not exist in type 'HandlerOptions<ShopEvents, "OrderPlaced", `,
  },
  'an event type of a join that there is not': {
    code: `defineJoin('ship', { events, on: 'OrderPayd', run: () => undefined })`,
    at: 'on',
    says: `Did you mean '"OrderPaid"'?`,
  },
  'an event type of a subscription that there is not': {
    code: `defineSubscription('mailer', { events, types: ['OrderShiped'], run: () => undefined })`,
    at: "'OrderShiped'",
    says: `Did you mean '"OrderShipped"'?`,
  },
  'an event type of a processor that there is not': {
    code: `defineProcessor('audit', { events, on: { OrderPlacd: () => undefined } })`,
    at: 'OrderPlacd',
    says: "Did you mean to write 'OrderPlaced'?",
  },
  'an event type of a schedule that there is not': {
    code: `defineSchedule('nightly', { events, cron: '0 3 * * *', run: ({ emit }) => emit('OrderPayd', { receipt: 'x' }) })`,
    at: "'OrderPayd'",
    says: `Argument of type '"OrderPayd"' is not assignable to parameter of type '"Order`,
  },
  'a list of definitions that there is not': {
    code: `defineConfig({ events, handler: [] })`,
    at: 'handler',
    says: "'handler' does not exist in type 'Config<ShopEvents>'. Did you mean to write 'handlers'?",
  },
  'an option of a store that there is not': {
    code: `openStore({ events, ulr: 'postgres://' })`,
    at: 'ulr',
    says: "'ulr' does not exist in type 'StoreOptions<ShopEvents>'.",
  },
  'an option of a list that there is not': {
    code: `store.streams.list({ afer: 'x' })`,
    at: 'afer',
    says: "Did you mean to write 'after'?",
  },
  'an option of a wait that there is not': {
    code: `store.consumers.waitFor(sales, 5, { timeotMs: 5 })`,
    at: 'timeotMs',
    says: "Did you mean to write 'timeoutMs'?",
  },
  'an event type to follow that there is not': {
    code: `store.events.tail({ types: ['OrderPlacd'] })`,
    at: "'OrderPlacd'",
    says: `Did you mean '"OrderPlaced"'?`,
  },
  'an event type of a decision that there is not': {
    code: `store.decide(Order, 'order-1', () => ({ type: 'OrderShiped', data: { carrier: 'x' } }))`,
    at: 'type',
    says: `Type '"OrderShiped"' is not assignable to type '"OrderShipped"'.`,
  },
  'an event type in evolve that there is not': {
    code: `defineAggregate('order', { events, initial: () => ({ cents: 0 }), evolve: { OrderPlacd: (order: never) => order } })`,
    at: 'OrderPlacd',
    says: "Did you mean to write 'OrderPlaced'?",
  },
  'a wrong field of a state': {
    code: `defineAggregate('order', { events, initial: () => ({ cents: 0 }), evolve: { OrderPaid: o => ({ ...o, cents: 'x' }) } })`,
    at: 'cents',
    says: "Type 'string' is not assignable to type 'number'.",
  },
  'a state that there is not': {
    code: `defineAggregate('order', { events, initial: (): OrderState => ({ status: 'new' }), evolve: { OrderPaid: o => ({ ...o, status: 'pad' }) } })`,
    at: 'status',
    says: `Did you mean '"paid"'?`,
  },
  'an event type in decide that there is not': {
    code: `defineAggregate('order', { events, initial: () => 0, evolve: n => n, decide: (c: 'ship', n) => ({ type: 'OrderShiped', data: { carrier: 'x' } }) })`,
    at: 'decide',
    says: `Type '"OrderShiped"' is not assignable to type '"OrderShipped"'.`,
  },
  'an option of an aggregate that there is not': {
    code: `defineAggregate('order', { events, initial: () => 0, evolve: n => n, snapshot: { every: 5 } })`,
    at: 'snapshot',
    says: "Did you mean to write 'snapshots'?",
  },
  'a field of event data that there is not': {
    code: `defineDocumentProjection('orders', { events, initial: () => ({ cents: 0 }), evolve: { OrderPlaced: (o, { data }) => ({ ...o, cents: data.cets }) } })`,
    at: 'cets',
    says: "Did you mean 'cents'?",
  },
  'a wrong field of a document': {
    code: `defineDocumentProjection('orders', { events, initial: () => ({ cents: 0 }), evolve: { OrderPlaced: o => ({ ...o, cents: 'x' }) } })`,
    at: 'cents',
    says: "Type 'string' is not assignable to type 'number'.",
  },
  'an event type in a projection that there is not': {
    code: `defineProjection('totals', { events, on: { OrderPlacd: () => {} } })`,
    at: 'OrderPlacd',
    says: "Did you mean to write 'OrderPlaced'?",
  },
  'a column type that there is not': {
    code: `defineTableProjection('sales', { events, columns: { id: 'text', n: 'intger' }, primaryKey: ['id'], on: { OrderPaid: () => undefined } })`,
    at: 'n',
    says: `Did you mean '"integer"'?`,
  },
  'a column to increment that there is not': {
    code: `defineTableProjection('sales', { events, columns: { id: 'text', orders: 'integer' }, primaryKey: ['id'], on: { OrderPaid: (e, row) => row({ id: 'a' }, { increment: { ordres: 1 } }) } })`,
    at: 'ordres',
    says: "Did you mean to write 'orders'?",
  },
  'a column to increment that is not a number': {
    code: `defineTableProjection('sales', { events, columns: { id: 'text', city: 'text', n: 'integer' }, primaryKey: ['id'], on: { OrderPaid: (e, row) => row({ id: 'a' }, { increment: { city: 1 } }) } })`,
    at: 'city',
    says: "'city' does not exist",
  },
  'a wrong value of a column': {
    code: `defineTableProjection('sales', { events, columns: { id: 'text', city: 'text' }, primaryKey: ['id'], on: { OrderPaid: (e, row) => row({ id: 'a' }, { set: { city: 1 } }) } })`,
    at: 'city',
    says: "Type 'number' is not assignable to type 'string'.",
  },
  'a column of a row that there is not': {
    code: `store.rows(sales).where(row => gt(row.cets, 5))`,
    at: 'cets',
    says: "Did you mean 'cents'?",
  },
  'a wrong operand': {
    code: `store.rows(sales).where(row => gt(row.cents, 'many'))`,
    at: "'many'",
    says: "Argument of type 'string' is not assignable to parameter of type 'number | bigint'.",
  },
  'a field of a document that there is not': {
    code: `store.documents(customers).where(c => eq(c.emial, 'ada@x'))`,
    at: 'emial',
    says: "Did you mean 'email'?",
  },
  'a wrong field of a document that is put': {
    code: `store.documents(customers).put('ada', { email: 5 })`,
    at: 'email',
    says: "Type 'number' is not assignable to type 'string'.",
  },
  'an index on a field that there is not': {
    code: `defineCollection<Customer>('customers', { indexes: ['emial'] })`,
    at: "'emial'",
    says: `Type '"emial"' is not assignable to type`,
  },
  'a write to the documents of a projection': {
    code: `store.documents(orders).put('order-1', { cents: 1 })`,
    at: 'put',
    says: "Property 'put' does not exist on type 'ReadDocuments<{ cents: number; }>'.",
  },
  'a command that there is not': {
    code: `store.handle(Order, 'order-1', { type: 'Shp', carrier: 'x' })`,
    at: 'type',
    says: `Type '"Shp"' is not assignable to type '"Ship"'.`,
  },
  'an aggregate of foreign events': {
    code: `foreign.handle(Order, 'order-1', { type: 'Ship', carrier: 'x' })`,
    at: 'Order',
    says: `is missing the following properties`,
  },
}

const header = `
import { defineAggregate } from '${source('aggregates/aggregate.ts')}'
import { defineConfig } from '${source('config.ts')}'
import { defineProcessor } from '${source('consumers/processor.ts')}'
import { defineCollection } from '${source('documents/collection.ts')}'
import { eq, gt } from '${source('documents/query/condition.ts')}'
import { defineEvents } from '${source('events/definition.ts')}'
import { defineDocumentProjection } from '${source('projections/document-projection.ts')}'
import { defineProjection } from '${source('projections/projection.ts')}'
import { defineTableProjection } from '${source('projections/table-projection.ts')}'
import { openStore, type Store } from '${source('store.ts')}'
import { defineSubscription } from '${source('subscriptions/subscription.ts')}'
import { defineHandler } from '${source('workflows/handler.ts')}'
import { defineJoin } from '${source('workflows/joins/join.ts')}'
import { defineSchedule } from '${source('workflows/schedules/schedule.ts')}'

interface ShopEvents {
  OrderPlaced: { cents: number }
  OrderPaid: { receipt: string }
  OrderShipped: { carrier: string }
}
interface OrderState { status: 'new' | 'paid' }
interface Customer { email: string }
const events = defineEvents<ShopEvents>()
const Order = defineAggregate('order', {
  events,
  initial: (): OrderState => ({ status: 'new' }),
  evolve: { OrderPaid: order => ({ ...order, status: 'paid' }) },
  decide: (command: { type: 'Ship'; carrier: string }, order) => ({ type: 'OrderShipped', data: { carrier: command.carrier } }),
})
const orders = defineDocumentProjection('orders', { events, initial: () => ({ cents: 0 }), evolve: order => order })
const sales = defineTableProjection('sales', { events, columns: { id: 'text', cents: 'bigint' }, primaryKey: ['id'], on: { OrderPaid: () => undefined } })
const customers = defineCollection<Customer>('customers')
declare const store: Store<ShopEvents>
declare const foreign: Store<{ CustomerMoved: { city: string } }>
`

function source(path: string): string {
  return resolve('src', path)
}

/** The errors of a program, as the compiler reports them: line and column from 1, and the whole message. */
async function errorsOf(
  program: string,
  compiler: string,
): Promise<{ line: number; column: number; message: string }[]> {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-types-'))
  try {
    await writeFile(join(folder, 'mistakes.ts'), program)
    const options = { strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true }
    const more = { target: 'es2022', lib: ['es2023', 'esnext.disposable'], module: 'nodenext', skipLibCheck: true }
    const compilerOptions = {
      ...options,
      ...more,
      allowImportingTsExtensions: true,
      types: ['node'],
      typeRoots: [resolve('node_modules/@types')],
    }
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['mistakes.ts'] }))
    const output = await new Promise<string>(done => {
      execFile(process.execPath, [compiler, '-p', folder, '--pretty', 'false'], (_, stdout) => done(stdout))
    })
    return [...output.matchAll(/^(?:.*[/\\])?mistakes\.ts\((\d+),(\d+)\): error (.*(?:\n {2}.*)*)/gm)].map(
      ([, line, column, message]) => ({ line: Number(line), column: Number(column), message: message! }),
    )
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** A package of its own: a second compiler in ours would take the place of `tsc`. */
const oldest = resolve('test/types/oldest')
const hasOldest =
  existsSync(join(oldest, 'node_modules/typescript')) || (await hasInstalled(oldest)) || process.env.CI !== undefined

function hasInstalled(folder: string): Promise<boolean> {
  return new Promise(done => {
    const options = ['--ignore-scripts', '--no-audit', '--no-fund']
    execFile('npm', ['--prefix', folder, 'ci', ...options], error => done(error === null))
  })
}

/** The compiler of the project, and the oldest one that users may have; that is left out where no registry answers. */
const compilers = [
  { version: '7', path: resolve('node_modules/typescript/bin/tsc') },
  ...(hasOldest ? [{ version: '5.4', path: join(oldest, 'node_modules/typescript/bin/tsc') }] : []),
]

test.each(compilers)(
  'TypeScript $version reports mistakes at the word that is wrong, and says what there is instead',
  async ({ path }) => {
    const lines = header.split('\n')
    const first = lines.length + 1
    const program = [...lines, ...Object.values(mistakes).map(({ code }) => `void (${code})`)]

    const errors = await errorsOf(program.join('\n'), path)

    expect(errors.filter(({ line }) => line < first)).toEqual([])
    for (const [i, [what, { at, says }]] of Object.entries(mistakes).entries()) {
      const found = errors.filter(({ line }) => line === first + i)
      const words = found.map(({ line, column }) => program[line - 1]!.slice(column - 1))
      expect(found.map(({ message }) => message).join('\n'), what).toContain(says)
      expect(
        words.some(word => word.startsWith(at)),
        `${what}: reported at ${words.join(' | ')}`,
      ).toBe(true)
    }
  },
)
