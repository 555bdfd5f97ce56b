/**
 * Whoever writes while a store leaves waits, and then fails: by every way of writing there is, with statements prepared
 * and plans kept from before. So does whoever comes afterwards.
 */
import { expect, test } from 'vitest'
import { isRillflowError } from '../../../src/core/errors.ts'
import { switchOver } from '../../../src/transfer/move/move.ts'
import { isStoreMissing } from '../../../src/transfer/move/moved-marker.ts'
import type { Customer } from '../../documents/customers.ts'
import { connect, outcome, paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { contentsOf } from './judge.ts'
import { waitersAt, ways } from './late.ts'
import { type OpenMove, openMove } from './servers.ts'

type Late = [way: string, send: () => Promise<unknown>][]

/** Each way with a store of its own, as if in a process of its own. */
async function makeReady(opened: OpenMove): Promise<Late> {
  opened.store.documents<Customer>('customers')
  await opened.store.schema.sync()
  const late: Late = []
  for (const [way, makeReady] of Object.entries(ways))
    late.push([way, await makeReady({ ...opened, store: await opened.open(opened.source) })])
  return late
}

test('every way of writing waits while the store leaves, then fails, and nothing of it is anywhere', async () => {
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

test('every way of writing fails after the store has left, also one that was made ready before', async () => {
  const opened = await openMove()
  const { move, source, target } = opened
  const late = await makeReady(opened)
  await switchOver(move)

  for (const [way, send] of late) {
    const { value, error } = await outcome(send())
    // A consumer that could not renew its lease says so instead.
    const isRefused = isStoreMissing(error) || isRillflowError(error, 'lease_lost')
    expect([way, value, isRefused], String(error)).toEqual([way, undefined, true])
  }

  expect(await contentsOf(source, move.retired)).toEqual(await contentsOf(target, move.target.schema))
})

test('a store cannot be made anew where one has left, by whoever did not hear of it', async () => {
  const { move, source, open } = await openMove()
  await switchOver(move)

  const making = await outcome(open(source, { migrate: true }))
  const looking = await outcome(open(source))

  expect([making.error, looking.error]).toMatchObject([{ code: 'schema_newer' }, { code: 'schema_newer' }])
})

test('the schema of a store that has left is of no use under its other name, and is whole again under its own', async () => {
  const { move, source, store } = await openMove()
  await store.events.append('order-1', placed())
  await switchOver(move)
  const { schema } = move.source
  const call = `select ~append_one('order-1', -1, false, array[gen_random_uuid()], array['OrderPaid'], null, '[{}]', '[null]', null, null, null)`

  await expect(source.query(move.retired, call)).rejects.toMatchObject({ code: expect.stringMatching(/42P01|42704/) })
  await source.query(schema, `drop schema "${schema}" cascade`)
  await source.query(schema, `alter schema "${move.retired}" rename to "${schema}"`)

  expect(await store.events.append('order-1', paid)).toMatchObject({ version: 2 })
})
