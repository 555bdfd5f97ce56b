/**
 * Writes to a store that is leaving wait, and then fail: every kind of write, also with statements and plans prepared
 * before. Later writes fail as well.
 */
import { expect, test } from 'vitest'
import { isRillflowError } from '../../../src/core/errors.ts'
import { switchOver } from '../../../src/transfer/move/move.ts'
import { isStoreMissing } from '../../../src/transfer/move/moved-marker.ts'
import type { Customer } from '../../documents/customers.ts'
import { connect, outcome, paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { waitersAt, writes } from './late-writes.ts'
import { contentsOf } from './schema-contents.ts'
import { type OpenMove, openMove } from './two-servers.ts'

type Late = [way: string, send: () => Promise<unknown>][]

/** Each kind of write with its own store, like a separate process. */
async function makeReady(opened: OpenMove): Promise<Late> {
  opened.store.documents<Customer>('customers')
  await opened.store.schema.sync()
  const late: Late = []
  for (const [way, makeReady] of Object.entries(writes))
    late.push([way, await makeReady({ ...opened, store: await opened.open(opened.source) })])
  return late
}

test('every kind of write waits while the store leaves, then fails, and is stored nowhere', async () => {
  const opened = await openMove()
  const { move, source, target } = opened
  const late = await makeReady(opened)
  const watcher = await connect(source.url)
  const sent: [string, ReturnType<typeof outcome>][] = []

  await switchOver(move, {
    maxPauseMs: 600_000,
    beforeRelease: async () => {
      for (const [way, send] of late) {
        const before = await waitersAt(watcher, move.source.schema)
        sent.push([way, outcome(send())])
        await waitUntil(async () => (await waitersAt(watcher, move.source.schema)) > before, {
          what: `${way}, waiting`,
        })
      }
    },
  })

  for (const [way, outcome] of sent) {
    const { value, error } = await outcome
    expect([way, value, isStoreMissing(error)], String(error)).toEqual([way, undefined, true])
  }
  expect(await contentsOf(source, move.retired)).toEqual(await contentsOf(target, move.target.schema))
})

test('every kind of write fails after the store has left, also a prepared one', async () => {
  const opened = await openMove()
  const { move, source, target } = opened
  const late = await makeReady(opened)
  await switchOver(move)

  for (const [way, send] of late) {
    const { value, error } = await outcome(send())
    // A consumer that could not renew its lease reports that instead.
    const isRefused = isStoreMissing(error) || isRillflowError(error, 'lease_lost')
    expect([way, value, isRefused], String(error)).toEqual([way, undefined, true])
  }

  expect(await contentsOf(source, move.retired)).toEqual(await contentsOf(target, move.target.schema))
})

test('a process that does not know of the move cannot create a new store where one has left', async () => {
  const { move, source, open } = await openMove()
  await switchOver(move)

  const making = await outcome(open(source, { migrate: true }))
  const looking = await outcome(open(source))

  expect([making.error, looking.error]).toMatchObject([{ code: 'schema_newer' }, { code: 'schema_newer' }])
})

test('the schema of a store that has left cannot be used under its other name, and is complete again under its own', async () => {
  const { move, source, store } = await openMove()
  await store.events.append('order-1', placed())
  await switchOver(move)
  const { schema } = move.source
  const call = `select ~append_one('order-1', 'any', null, false, array[gen_random_uuid()], array['OrderPaid'], null, '[{}]', '[null]', null, null, null)`

  await expect(source.query(move.retired, call)).rejects.toMatchObject({ code: expect.stringMatching(/42P01|42704/) })
  await source.query(schema, `drop schema "${schema}" cascade`)
  await source.query(schema, `alter schema "${move.retired}" rename to "${schema}"`)

  expect(await store.events.append('order-1', paid)).toMatchObject({ version: 2 })
})
