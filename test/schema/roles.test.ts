import { beforeAll, expect, test } from 'vitest'
import { roleStatements } from '../../src/schema/roles.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { onServer, openShop, outcome, placed, type ShopMap } from '../support/shop.ts'
import { type CallKind, callDefinitions, type StoreCall, storeCalls, surfaceOf } from '../support/store-calls.ts'

const definitions = callDefinitions

const schema = freshSchema()
const roles = { owner: `${schema}_o`, writer: `${schema}_w`, reader: `${schema}_r` }
let urls: Record<keyof typeof roles, string>

beforeAll(async () => {
  if (!onServer) return
  const database = await openDatabase()
  await database.transaction(async tx => {
    // Twice: running them again changes nothing.
    for (const statement of [...roleStatements(schema, roles), ...roleStatements(schema, roles)])
      await tx.query(statement)
    for (const role of Object.values(roles)) await tx.query(`alter role "${role}" login password 'shop'`)
  })
  const urlOf = (role: string): string => {
    const url = new URL(postgresUrl())
    url.username = role
    url.password = 'shop'
    return url.href
  }
  urls = { owner: urlOf(roles.owner), writer: urlOf(roles.writer), reader: urlOf(roles.reader) }
  return async () => {
    await database.transaction(async tx => {
      await tx.query(`drop schema "${schema}" cascade`)
      for (const role of Object.values(roles)) await tx.query(`drop owned by "${role}" cascade`)
      for (const role of Object.values(roles)) await tx.query(`drop role "${role}"`)
    })
  }
})

type Calls = ReadonlyMap<string, StoreCall>

function callsOfKind(...kinds: readonly CallKind[]): Calls {
  return new Map([...storeCalls].filter(([, { kind }]) => kinds.includes(kind)))
}

const reads = callsOfKind('read')
const writes = callsOfKind('write', 'operator')
const structural = callsOfKind('structure, recorded')

async function refusedCalls(store: Store<ShopMap>, calls: Calls): Promise<Record<string, unknown>> {
  const refused: Record<string, unknown> = {}
  for (const [name, { run }] of calls) {
    const { error } = await outcome((async () => run(store))())
    if (error !== undefined) refused[name] = (error as { code?: string }).code ?? error
  }
  return refused
}

test('each call of a store is tried, and none is that is not there', async () => {
  const { store } = await openShop(callDefinitions)

  expect(surfaceOf(store)).toEqual([...storeCalls.keys()].sort())
})

test.runIf(onServer)(
  'an owner can do everything, a writer all but change the structure, a reader only read',
  async () => {
    const open = async (role: keyof typeof roles, more: Partial<StoreOptions<ShopMap>> = {}) => {
      const store = await openStore({ ...definitions, url: urls[role], schema, logger: false, ...more })
      store.documents('customers')
      store.documents('ledger', { history: true })
      return store
    }
    const owner = await open('owner', { migrate: true })
    await owner.schema.sync()
    await owner.events.append('order-1', placed())
    const writer = await open('writer')
    const reader = await open('reader', { register: false })

    expect(await refusedCalls(owner, new Map([...writes, ...reads]))).toEqual({})
    expect(await refusedCalls(owner, structural)).toEqual({})
    expect(await refusedCalls(writer, new Map([...writes, ...reads]))).toEqual({})
    await (await writer.start()).stop()
    expect(await refusedCalls(writer, structural)).toEqual(denied(structural))
    expect(await refusedCalls(reader, reads)).toEqual({})
    expect(await refusedCalls(reader, new Map([...writes, ...structural]))).toEqual(
      denied(new Map([...writes, ...structural])),
    )
    await Promise.all([owner, writer, reader].map(store => store.close()))
  },
  180_000,
)

function denied(calls: Calls): Record<string, string> {
  return Object.fromEntries([...calls.keys()].map(name => [name, 'permission_denied']))
}
