import { expect, test } from 'vitest'
import { append, increment, insert, type Patch, remove, rename, set, unset } from '../../src/documents/patch/patch.ts'
import { eq } from '../../src/documents/query/condition.ts'
import { type Customer, openCustomers } from './customers.ts'

const email = 'ada@x'

/** Patches documents of one store, each a new one, and returns the result. */
async function openPatching(): Promise<(before: object, patch: object) => Promise<unknown>> {
  const { customers } = await openCustomers()
  return async (before, patch) => {
    const { id } = await customers.insert(before as Customer)
    expect(await customers.patch(id, patch as Patch<Customer>)).toBe(2)
    return (await customers.get(id))!.data
  }
}

test('RB-30: patching a nested field keeps its siblings', async () => {
  const patched = await openPatching()
  const before = { email, profile: { name: 'Ada', age: 36, address: { city: 'London' } } }

  expect(await patched(before, { 'profile.name': 'Alicia' })).toEqual({
    email,
    profile: { name: 'Alicia', age: 36, address: { city: 'London' } },
  })
})

test('RB-30: two patches under one parent both apply, in one call and concurrently', async () => {
  const { customers } = await openCustomers()
  await customers.put('ada', { email, profile: { name: 'Ada' } })

  await customers.patch('ada', { 'profile.age': 36, 'profile.address.city': 'London', visits: 1 })
  await Promise.all([
    customers.patch('ada', { 'profile.name': 'Alicia' }),
    customers.patch('ada', { 'profile.age': 37 }),
    customers.patch('ada', { visits: increment(2) }),
  ])

  expect(await customers.get('ada')).toMatchObject({
    data: { email, profile: { name: 'Alicia', age: 37, address: { city: 'London' } }, visits: 3 },
    version: 5,
  })
})

test('RB-31: missing parents are created, at any depth', async () => {
  const patched = await openPatching()
  expect(await patched({}, { 'a.b.c': 1, 'a.b.d.e': 2, 'x[0].y[0]': 3 })).toEqual({
    a: { b: { c: 1, d: { e: 2 } } },
    x: [{ y: [3] }],
  })
  expect(await patched({ a: null }, { 'a.b.c': 1 })).toEqual({ a: { b: { c: 1 } } })
})

test('RB-30: elements of arrays are patched by their index', async () => {
  const patched = await openPatching()
  const before = { lines: [{ sku: 'a', price: 1 }, { sku: 'b', price: 2 }, 'x'], grid: [[1, 2], [3]] }

  expect(await patched(before, { 'lines[0].price': 9, 'lines[1]': 'b', 'grid[1][1]': 4, 'grid[2][0]': 5 })).toEqual({
    lines: [{ sku: 'a', price: 9 }, 'b', 'x'],
    grid: [[1, 2], [3, 4], [5]],
  })
  expect(await patched(before, { 'lines.0.price': 9, 'lines.3': 'y', 'lines.4': 'z', 'lines.1': unset() })).toEqual({
    ...before,
    lines: [{ sku: 'a', price: 9 }, 'x', 'y', 'z'],
  })
})

test('a number after a dot is a key where there is no array', async () => {
  const patched = await openPatching()
  expect(
    await patched({ counts: { 7: 1 } }, { 'counts.42': increment(), 'counts.7': increment(), 'new.5.6': 'x' }),
  ).toEqual({
    counts: { 7: 2, 42: 1 },
    new: { 5: { 6: 'x' } },
  })
  expect(await patched({ a: [{ 5: 'old' }] }, { 'a.0.5': 'new', 'a.0.6': unset() })).toEqual({ a: [{ 5: 'new' }] })
})

test('every operation, in one statement', async () => {
  const patched = await openPatching()
  const before = {
    set: 1,
    null: 1,
    unset: 1,
    deep: { unset: 1, keep: true },
    price: 0.1,
    tags: ['a', 'b', 'a'],
    list: [1, 2, 3],
    rest: [{ n: 1 }, { n: 2 }, null],
    old: { value: 1 },
    stays: 'x',
  }
  const patch = {
    set: { nested: [1, { two: 2 }] },
    null: null,
    unset: unset(),
    'deep.unset': unset(),
    'deep.missing': unset(),
    price: increment(0.2),
    'new.count': increment(5),
    'new.list': append('x'),
    tags: remove('a', 'z'),
    list: insert(1, 9, 8),
    rest: append({ n: 3 }, [4]),
    old: rename('renamed'),
    nothing: rename('still nothing'),
  }

  expect(await patched(before, patch)).toEqual({
    set: { nested: [1, { two: 2 }] },
    null: null,
    deep: { keep: true },
    price: 0.3,
    new: { count: 5, list: ['x'] },
    tags: ['b'],
    list: [1, 9, 8, 2, 3],
    rest: [{ n: 1 }, { n: 2 }, null, { n: 3 }, [4]],
    renamed: { value: 1 },
    stays: 'x',
  })
})

test('arrays can be changed at both ends, and are created by additions', async () => {
  const patched = await openPatching()
  expect(
    await patched(
      { a: [1], b: [1], c: [1], d: null, e: [2] },
      {
        a: insert(0, 0),
        b: insert(1, 2),
        c: remove(1),
        d: append(1),
        e: append(),
        f: insert(0, 'x'),
        g: remove('x'),
        'h[0]': unset(),
      },
    ),
  ).toEqual({ a: [0, 1], b: [1, 2], c: [], d: [1], e: [2], f: ['x'], g: [] })
})

test('removals create nothing', async () => {
  const patched = await openPatching()
  const before = { kept: { a: 1 }, empty: null, list: [{ a: 1, b: 2 }] }
  const patch = {
    'kept.none.deeper': unset(),
    'missing.a.b': unset(),
    'missing.c': rename('d'),
    'empty.a': unset(),
    'none[0].a': unset(),
    'list[0].a': unset(),
    'list[1].a': unset(),
    'list[7]': unset(),
  }

  expect(await patched(before, patch)).toEqual({ kept: { a: 1 }, empty: null, list: [{ b: 2 }] })
})

test('a value that looks like an operation is stored as a value', async () => {
  const patched = await openPatching()
  const lookalike = { '~patch': { kind: 'unset' } }

  expect(await patched({ a: 1 }, { a: lookalike, b: set(lookalike) })).toEqual({ a: lookalike, b: lookalike })
})

test('keys may hold anything but dots and brackets', async () => {
  const patched = await openPatching()
  const keys = { "it's": 1, 'a "b"': 2, $1: 3, ключ: 4, '{x,y}': 5, 'a-b c': 6, constructor: 7 }

  expect(await patched({}, keys)).toEqual(keys)
})

test('a patch of many fields is one statement', async () => {
  const patched = await openPatching()
  const many = Object.fromEntries(Array.from({ length: 150 }, (_, i) => [`field${i}`, i]))

  expect(await patched({ email }, many)).toEqual({ email, ...many })
})

test('a patch that does not fit is refused as a whole, with the path', async () => {
  const { customers } = await openCustomers()
  const misfits: [object, object, string, string][] = [
    [{ a: 'text' }, { 'a.b': 1 }, 'a', 'is not an object'],
    [{ a: [1] }, { 'a.b': 1 }, 'a', 'is not an object'],
    [{ a: {} }, { 'a[0]': 1 }, 'a', 'is not an array'],
    [{ a: 1 }, { 'a.0': 1 }, 'a', 'is neither an object nor an array'],
    [{ a: { b: '1' } }, { 'a.b': increment(1) }, 'a.b', 'is not a number'],
    [{ a: {} }, { a: append(1) }, 'a', 'is not an array'],
    [{ a: 'x' }, { a: remove('x') }, 'a', 'is not an array'],
    [{ a: [1] }, { 'a[2]': 1 }, 'a[2]', 'is beyond the end of the array'],
    [{ a: [1] }, { 'a.2': 1 }, 'a.2', 'is beyond the end of the array'],
    [{ a: [1] }, { a: insert(2, 1) }, 'a', 'has no place 2 to insert at'],
  ]

  for (const [before, patch, path, reason] of misfits) {
    const { id } = await customers.insert(before as Customer)
    const work = customers.patch(id, { ...patch, visits: 1 } as Patch<Customer>)
    await expect(work).rejects.toMatchObject({ code: 'patch_mismatch', id, path, reason })
    expect(await customers.get(id)).toMatchObject({ data: before, version: 1 })
  }
})

test('an invalid path or value is refused before anything is sent', async () => {
  const { customers } = await openCustomers()
  const invalid: [string, unknown, RegExp][] = [
    ['', 1, /not a path/],
    ['a..b', 1, /not a path/],
    ['.a', 1, /not a path/],
    ['a.', 1, /not a path/],
    ['a[x]', 1, /not a path/],
    ['a[-1]', 1, /not a path/],
    ['a[0', 1, /not a path/],
    ['[0]', 1, /an object, not an array/],
    ['__proto__', 1, /__proto__/],
    ['a.__proto__.b', 1, /__proto__/],
    ['a\0b', 1, /NUL/],
    ['a', Number.NaN, /NaN/],
    ['a', { b: [1n] }, /BigInt/],
    ['a', () => 1, /function/],
    ['a', JSON.parse('{"__proto__": {"isAdmin": true}}'), /not allowed/],
    ['a', rename('__proto__'), /__proto__/],
    ['a', rename(''), /empty/],
    ['a[0]', rename('b'), /no name/],
    [Array.from({ length: 60 }, () => 'a').join('.'), 1, /deeper/],
  ]

  for (const [path, value, message] of invalid) {
    const work = customers.patch('ada', { [path]: value } as Patch<Customer>)
    await expect(work, path).rejects.toMatchObject({ code: 'invalid_patch', message: expect.stringMatching(message) })
  }
})

test('a patch with two changes to one path, or with none, is refused', async () => {
  const { customers } = await openCustomers()
  const patches: unknown[] = [
    { a: 1, 'a.b': 2 },
    { 'a.b.c': 1, 'a.b': 2 },
    { 'a[0]': 1, 'a.b': 2 },
    { a: rename('b'), b: 1 },
    { a: rename('c'), b: rename('c') },
    {},
    [],
    null,
  ]

  for (const patch of patches)
    await expect(customers.patch('ada', patch as Patch<Customer>)).rejects.toMatchObject({ code: 'invalid_patch' })
})

test.each([[Number.POSITIVE_INFINITY], [Number.NaN], ['1' as unknown as number]])('increment(%s) is refused', by => {
  expect(() => increment(by)).toThrow(expect.objectContaining({ code: 'invalid_patch' }))
})

test.each([[-1], [0.5], [Number.NaN]])('insert(%s) is refused', at => {
  expect(() => insert(at, 'x')).toThrow(expect.objectContaining({ code: 'invalid_patch' }))
})

test('a merge patch follows RFC 7396', async () => {
  const { customers } = await openCustomers()
  const examples: [object, object, object][] = [
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
    [{ a: 'b' }, { a: null }, {}],
    [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
    [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
    [{ a: 'c' }, { a: ['b'] }, { a: ['b'] }],
    [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
    [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
    [{ a: 'text' }, { a: { b: { c: 1 } } }, { a: { b: { c: 1 } } }],
    [{ a: [1] }, { a: { b: 1 } }, { a: { b: 1 } }],
    [{ 'a.b': 1 }, { 'a.b': 2, 'c[0]': 3 }, { 'a.b': 2, 'c[0]': 3 }],
  ]

  for (const [before, patch, after] of examples) {
    const { id } = await customers.insert(before as Customer)
    expect(await customers.merge(id, patch as never, { expected: 1 })).toBe(2)
    expect((await customers.get(id))!.data).toEqual(after)
  }
})

test('an invalid merge patch is refused', async () => {
  const { customers } = await openCustomers()

  for (const patch of [null, [1], 'x', {}, { a: Number.NaN }])
    await expect(customers.merge('ada', patch as never)).rejects.toMatchObject({ code: 'invalid_patch' })
})

test('a patch by query changes every document that meets the condition, and no other', async () => {
  const { customers } = await openCustomers({ history: true })
  await customers.putMany([
    { id: 'ada', data: { email, tier: 'free', visits: 1 } },
    { id: 'bob', data: { email, tier: 'pro', visits: 1 } },
    { id: 'eve', data: { email, tier: 'free' } },
    { id: 'gone', data: { email, tier: 'free' } },
  ])
  await customers.softDelete('gone')

  const changed = await customers.patchMany(
    c => eq(c.tier, 'free'),
    { visits: increment(2), 'profile.age': 1 },
    { userId: 'boss' },
  )

  expect(changed).toBe(2)
  const found = await customers.getMany(['ada', 'bob', 'eve', 'gone'], { includeDeleted: true })
  expect(
    [...found.values()].map(({ data, version, updatedBy }) => [data.visits, data.profile?.age, version, updatedBy]),
  ).toEqual([
    [3, 1, 2, 'boss'],
    [1, undefined, 1, undefined],
    [2, 1, 2, 'boss'],
    [undefined, undefined, 2, undefined],
  ])
  expect((await customers.history('eve')).items).toHaveLength(2)
  expect(await customers.patchMany(c => eq(c.tier, 'nobody' as 'pro'), { visits: 1 })).toBe(0)
})

test('a patch by query that does not fit one document changes none', async () => {
  const { customers, store } = await openCustomers()
  await customers.putMany([
    { id: 'ada', data: { email, visits: 1 } },
    { id: 'bob', data: { email, visits: 'many' as never } },
  ])
  const everyone = (options?: object): Promise<number> =>
    customers.patchMany(c => eq(c.email, email), { visits: increment(1) }, options)

  await expect(everyone()).rejects.toMatchObject({ code: 'patch_mismatch', id: 'bob', path: 'visits' })
  await store.transaction(async tx => {
    await customers.patch('bob', { visits: 7 }, { tx })
    expect(await everyone({ tx })).toBe(2)
  })

  expect((await customers.get('ada'))?.data.visits).toBe(2)
  expect((await customers.get('bob'))?.data.visits).toBe(8)
})
