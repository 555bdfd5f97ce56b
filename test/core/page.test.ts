import { expect, test } from 'vitest'
import { everyItem, pageOfAll } from '../../src/core/page.ts'

const shops = ['tea-house', 'book-shop', 'Zoo', 'book-cellar', 'été']
const page = (options: object) => pageOfAll('shops', shops, options, name => name)

test('pages of a list in memory go by its keys, each item once', async () => {
  const first = page({ limit: 2 })
  const second = page({ limit: 2, after: first.next })
  const third = page({ limit: 2, after: second.next })

  expect([first, second, third].map(({ items }) => items)).toEqual([
    ['Zoo', 'book-cellar'],
    ['book-shop', 'tea-house'],
    ['été'],
  ])
  expect(third.next).toBeUndefined()
  expect(await everyItem(async options => page({ ...options, limit: 2 }))).toEqual([...shops].sort())
})

test('the place of a page is the text that the list gave, and nothing else', () => {
  for (const after of ['Zoo', '', '42']) expect(() => page({ after })).toThrow('the "next" of an earlier page')
  for (const limit of [0, 1.5, 10_001]) expect(() => page({ limit })).toThrow('limit')
})
