import { expect, test } from 'vitest'
import { remove, reset } from '../../src/consumers/operator.ts'
import { outcome, placed } from '../support/shop.ts'
import { type Letters, openLetters } from './letters.ts'

test('a reset closes the letters of events that will come again, and leaves the others', async () => {
  const { letters, log, fail, hold } = await openLetters()
  const [first, second] = [await fail('order-1', placed()), await fail('order-2', placed())]
  await hold()

  await reset(log, ['mailer'], first.position)

  expect(await states(letters)).toEqual({ [first.id]: 'open', [second.id]: 'resolved' })
})

test('a reset that cannot be finished changes nothing', async () => {
  const { letters, log, query, fail, hold } = await openLetters()
  const event = await fail('order-1', placed())
  await hold()
  await query('update ~consumers set checkpoint = 1')
  await refuse(query, 'update')

  const { error } = await outcome(reset(log, ['mailer'], 0))

  expect(error).toMatchObject({ code: 'database_failed' })
  expect(await query('select checkpoint from ~consumers')).toEqual([{ checkpoint: 1 }])
  expect(await states(letters)).toEqual({ [event.id]: 'open' })
})

test('a consumer that cannot be deleted with its letters stays', async () => {
  const { letters, log, query, fail, hold } = await openLetters()
  const event = await fail('order-1', placed())
  await hold()
  await refuse(query, 'delete')

  const { error } = await outcome(remove(log, ['mailer']))

  expect(error).toMatchObject({ code: 'database_failed' })
  expect(await query('select name from ~consumers')).toEqual([{ name: 'mailer' }])
  expect(await states(letters)).toEqual({ [event.id]: 'open' })
})

test('an unknown consumer is named, with the nearest one, inside of a transaction too', async () => {
  const { log, database, hold } = await openLetters()
  await hold()

  const resetting = await outcome(database.transaction(tx => reset(log, ['mailr'], 0, tx)))
  const deleting = await outcome(remove(log, ['mailr']))

  expect(resetting.error).toMatchObject({ code: 'consumer_not_found', consumer: 'mailr', nearest: 'mailer' })
  expect(deleting.error).toMatchObject({ code: 'consumer_not_found', consumer: 'mailr', nearest: 'mailer' })
})

async function states(letters: Letters['letters']): Promise<Record<string, string>> {
  return Object.fromEntries((await letters.list()).map(letter => [letter.eventId, letter.state]))
}

/** Lets the database refuse this change of any letter. */
async function refuse(query: Letters['query'], change: 'update' | 'delete'): Promise<void> {
  await query(`create function ~refuse() returns trigger language plpgsql as 'begin raise ''refused''; end'`)
  await query(`create trigger refuse before ${change} on ~dead_letters for each row execute function ~refuse()`)
}
