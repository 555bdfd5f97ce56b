import { expect, test } from 'vitest'
import { gt, search } from '../../../src/documents/query/condition.ts'
import { headline, rank } from '../../../src/documents/query/field.ts'
import { openShop } from '../../support/shop.ts'

interface Article {
  title: string
  text: string
  views?: number | string
}

async function articles() {
  const { store } = await openShop()
  const all = store.documents<Article>('articles', { search: ['title', 'text'] })
  await all.put('a', { title: 'Red shoes', text: 'Shoes, shoes and more running shoes', views: 10 })
  await all.put('b', { title: 'A red hat', text: 'One mention of shoes in a long text about hats', views: 9 })
  await all.put('c', { title: 'Tea', text: 'Green tea', views: 100 })
  return all
}

const ids = (rows: readonly { id: string }[]) => rows.map(({ id }) => id)

test('full text is ordered by rank, best first, page by page', async () => {
  const all = await articles()
  const query = all.where(c => search(c, 'shoes')).orderBy(c => rank(c, 'shoes'))

  const first = await query.page({ limit: 1, total: true })
  const second = await query.page({ limit: 1, after: first.next!, total: true })

  expect(ids(await query.toArray())).toEqual(['a', 'b'])
  expect([...ids(first.items), ...ids(second.items)]).toEqual(['a', 'b'])
  expect([first.total, second.total, second.next]).toEqual([2, 2, undefined])
  expect(
    await all
      .where(c => search(c, 'shoes'))
      .orderBy(c => rank(c, 'shoes'), 'asc')
      .first(),
  ).toMatchObject({ id: 'b' })
})

test('the last word may be the beginning of one', async () => {
  const all = await articles()
  const found = async (words: string, prefix: boolean) =>
    ids(
      await all
        .where(c => search(c, words, { prefix }))
        .orderBy(c => c.title)
        .toArray(),
    )

  expect(await found('red sho', true)).toEqual(['b', 'a'])
  expect(await found('red sho', false)).toEqual([])
  expect(await found('', true)).toEqual([])
  expect(await found('the', true)).toEqual([])
  expect(await found(`'"(( & | :* `, true)).toEqual([])
})

test('a headline shows the words that were found', async () => {
  const all = await articles()

  const rows = await all
    .where(c => search(c, 'tea'))
    .select({
      plain: c => headline(c.text, 'tea'),
      marked: c => headline(c.text, 'te', { prefix: true, mark: ['*', '*'] }),
    })
    .toArray()

  expect(rows).toEqual([{ plain: 'Green <b>tea</b>', marked: 'Green *tea*' }])
})

test('an index on text does not change the order of numbers', async () => {
  const { store } = await openShop()
  const all = store.documents<Article>('indexed', { indexes: ['views'] })
  for (const [id, views] of Object.entries({ a: 10, b: 9, c: 100, d: 'many' }))
    await all.put(id, { title: id, text: '', views })

  expect(
    ids(
      await all
        .query()
        .orderBy(c => c.views)
        .toArray(),
    ),
  ).toEqual(['d', 'b', 'a', 'c'])
})

test('a number is ordered as a number without a cast, and mixed kinds have an order', async () => {
  const all = await articles()
  const by = (direction: 'asc' | 'desc') => all.query().orderBy(c => c.views, direction)

  expect(ids(await by('asc').toArray())).toEqual(['b', 'a', 'c'])
  expect(ids(await by('desc').toArray())).toEqual(['c', 'a', 'b'])

  await all.put('d', { title: 'x', text: 'x', views: 'many' })
  await all.put('e', { title: 'y', text: 'y' })
  const pages: string[] = []
  for (let after: string | undefined; ; ) {
    const page = await by('asc').page({ limit: 1, after })
    pages.push(...ids(page.items))
    if (page.next === undefined) break
    after = page.next
  }
  expect(pages).toEqual(['d', 'b', 'a', 'c', 'e'])
  expect(ids(await by('desc').toArray())).toEqual(['e', 'c', 'a', 'b', 'd'])
  expect(
    ids(
      await all
        .where(c => gt(c.views, 9))
        .orderBy(c => c.views, { as: 'number' })
        .toArray(),
    ),
  ).toEqual(['a', 'c'])
})
