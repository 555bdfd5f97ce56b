import { expect, test } from 'vitest'
import { isRillflowError } from '../../src/core/errors.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Store } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, type Shop } from '../support/shop.ts'
import { type Place, places } from './places.ts'
import { hostileStrings } from './strings.ts'

const isLong = process.env.RILLFLOW_CHAOS === 'long'
/** In the short form each place gets a few strings, and over all places each string is used many times. */
const stringsFor = (place: number): readonly string[] =>
  isLong ? hostileStrings : hostileStrings.filter((text, at) => (at + place * 7) % 29 === 0 || /\0|^\ud800$/.test(text))

const definitions = {
  projections: [defineDocumentProjection('orders', { initial: () => ({}), evolve: (order: object) => order })],
  subscriptions: [defineSubscription('mailer', { run: () => {} })],
  handlers: [defineHandler('charge', { on: 'OrderPlaced', run: () => undefined })],
}

async function openTarget(): Promise<Shop & { plain: Store }> {
  const shop = await openShop({ ...definitions, maxQueuedAppends: 1000 } as never)
  const plain = shop.store as unknown as Store
  await plain.events.append('canary-1', { type: 'CanarySang', data: { song: 'here' } })
  await plain.documents('customers', { history: true }).put('ada', { name: 'Ada', list: [] })
  await plain.documents('canaries').put('tweety', { name: 'Tweety' })
  return { ...shop, plain }
}

/** What a call may do with any text: take it, or refuse it with an error of ours that is not one of the database. */
async function verdictOf(call: Place, text: string, store: Store): Promise<string | undefined> {
  try {
    await call(text, store)
    return undefined
  } catch (error) {
    if (!isRillflowError(error)) return `${(error as Error)?.name}: ${(error as Error)?.message}`
    return ['database_failed', 'connection_lost', 'outcome_unknown'].includes(error.code) ? error.message : undefined
  }
}

test(
  `${Object.keys(places).length} places take each hostile text or refuse it, and nothing else happens`,
  async () => {
    const { plain } = await openTarget()
    const wrong: [string, string, string][] = []

    for (const [at, [place, call]] of Object.entries(places).entries())
      for (const text of stringsFor(at)) {
        const verdict = await verdictOf(call, text, plain)
        if (verdict !== undefined) wrong.push([place, text.slice(0, 40), verdict.slice(0, 200)])
      }

    expect(wrong).toEqual([])
    const canary = await plain.events.read('canary-1').toArray()
    expect(canary).toMatchObject([{ type: 'CanarySang', data: { song: 'here' } }])
    expect(await plain.documents('canaries').get('tweety')).toMatchObject({ data: { name: 'Tweety' }, version: 1 })
    expect(Object.keys(Object.prototype)).toEqual([])
    expect(({} as { s?: unknown }).s).toBeUndefined()
    // Collections with hostile names and paths are made as any other.
    await plain.schema.sync()
    expect((await plain.schema.check()).problems).toEqual([])
  },
  isLong ? 1_800_000 : 300_000,
)

test('text that is stored comes back as it was', async () => {
  const { plain } = await openTarget()
  const storable = hostileStrings.filter(text => !text.includes('\0') && (text as WellFormed).isWellFormed())

  for (const [at, text] of storable.entries()) {
    await plain.events.append(`echo-${at}`, { type: 'Echo', data: { text, [text]: text }, headers: { text } })
    // The one name that a document may not have.
    const named = text === '__proto__' ? {} : { [text]: text }
    await plain.documents('echoes').put(`echo-${at}`, { text, ...named })
  }

  for (const [at, text] of storable.entries()) {
    const [event] = await plain.events.read(`echo-${at}`).toArray()
    const document = await plain.documents<{ text: string }>('echoes').get(`echo-${at}`)
    expect([(event!.data as { text: string }).text, document!.data.text]).toEqual([text, text])
    expect(Object.keys(event!.data as object).sort()).toEqual(
      Object.keys(JSON.parse(JSON.stringify({ text, [text]: text }))).sort(),
    )
  }
})

test('NUL and half a character are refused before they are sent, in names, values and queries', async () => {
  const { plain } = await openTarget()
  const refused: string[] = []

  for (const text of ['a\0b', 'a\ud800'])
    for (const [place, call] of Object.entries(places)) {
      const error = await Promise.resolve()
        .then(() => call(text, plain))
        .then(
          () => undefined,
          (failure: { sqlState?: string; cause?: { code?: string } }) => failure,
        )
      // The server has seen it if it has an SQLSTATE of its own.
      if (/^22(021|P05)$/.test(error?.sqlState ?? error?.cause?.code ?? '')) refused.push(place)
    }

  expect(refused).toEqual([])
})

type WellFormed = string & { isWellFormed(): boolean }
