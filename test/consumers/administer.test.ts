import { expect, test } from 'vitest'
import { reset } from '../../src/consumers/operator.ts'
import { removeConsumers as remove } from '../../src/consumers/remove.ts'
import { outcome, placed } from '../support/shop.ts'
import { type FailedEvents, openFailedEvents } from './failed-events.ts'

test('a reset closes the dead letters of events that will be delivered again, and no others', async () => {
  const { deadLetters, log, fail, hold } = await openFailedEvents()
  const [first, second] = [await fail('order-1', placed()), await fail('order-2', placed())]
  await hold()

  await reset(log, ['mailer'], first.position)

  expect(await states(deadLetters)).toEqual({ [first.id]: 'open', [second.id]: 'resolved' })
})

test('a reset that fails halfway changes nothing', async () => {
  const { deadLetters, log, query, fail, hold } = await openFailedEvents()
  const event = await fail('order-1', placed())
  await hold()
  await query('update ~consumers set checkpoint = 1')
  await refuse(query, 'update')

  const { error } = await outcome(reset(log, ['mailer'], 0))

  expect(error).toMatchObject({ code: 'database_failed' })
  expect(await query('select checkpoint from ~consumers')).toEqual([{ checkpoint: 1 }])
  expect(await states(deadLetters)).toEqual({ [event.id]: 'open' })
})

test('a consumer whose dead letters cannot be deleted is not deleted', async () => {
  const { deadLetters, log, query, fail, hold } = await openFailedEvents()
  const event = await fail('order-1', placed())
  await hold()
  await refuse(query, 'delete')

  const { error } = await outcome(remove(log, ['mailer']))

  expect(error).toMatchObject({ code: 'database_failed' })
  expect(await query('select name from ~consumers')).toEqual([{ name: 'mailer' }])
  expect(await states(deadLetters)).toEqual({ [event.id]: 'open' })
})

test('an unknown consumer is refused with the nearest name, also inside a transaction', async () => {
  const { log, database, hold } = await openFailedEvents()
  await hold()

  const resetting = await outcome(database.transaction(tx => reset(log, ['mailr'], 0, tx)))
  const deleting = await outcome(remove(log, ['mailr']))

  expect(resetting.error).toMatchObject({ code: 'consumer_not_found', consumer: 'mailr', nearest: 'mailer' })
  expect(deleting.error).toMatchObject({ code: 'consumer_not_found', consumer: 'mailr', nearest: 'mailer' })
})

async function states(deadLetters: FailedEvents['deadLetters']): Promise<Record<string, string>> {
  return Object.fromEntries((await deadLetters.list()).items.map(deadLetter => [deadLetter.eventId, deadLetter.state]))
}

/** Makes the database refuse this change of any dead letter. */
async function refuse(query: FailedEvents['query'], change: 'update' | 'delete'): Promise<void> {
  await query(`create function ~refuse() returns trigger language plpgsql as 'begin raise ''refused''; end'`)
  await query(`create trigger refuse before ${change} on ~dead_letters for each row execute function ~refuse()`)
}
