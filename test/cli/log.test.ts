import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { type Folder, openFolder, patienceMs } from './shop.ts'

let shop: Folder
let eventId: string

beforeAll(async () => {
  shop = await openFolder({
    async seed(store) {
      const placed = { type: 'OrderPlaced', data: { total: 99 }, headers: { channel: 'web' }, userId: 'ada' }
      const { eventIds } = await store.events.append('order-1', placed)
      eventId = eventIds[0]!
      await store.events.append('order-1', { type: 'OrderPaid', data: { method: 'card' } })
      await store.events.append('cart-1', { type: 'CartOpened', data: {} })
    },
  })
}, patienceMs)

test('events tail shows the latest events of the given streams and types', async () => {
  await shop.shows('events tail', {
    text: [/#1 .*order-1@1 +OrderPlaced +\{"total":99\}/, /#3 .*cart-1@1 +CartOpened/],
    json: [{ position: 1 }, { position: 2 }, { position: 3 }],
    isNdjson: true,
  })
  await shop.shows('events tail --limit 1 --category order', {
    text: [/^ +#2 .*OrderPaid .*\n$/],
    json: [{ position: 2, type: 'OrderPaid' }],
    isNdjson: true,
  })
})

test('events tail --follow continues with new events, and ends with Ctrl-C', async () => {
  const tail = shop.start('events tail --follow --type CartOpened --json')
  await waitUntil(() => tail.stdout().includes('cart-1'), { what: 'the existing event', deadlineMs: 60_000 })

  tail.interrupt()

  expect(await tail.ended).toMatchObject({ code: 0, stderr: '' })
})

test('events show prints one event in full, and suggests a command if there is no such event', async () => {
  await shop.shows(`events show ${eventId}`, {
    text: [/type +OrderPlaced/, 'order-1 at version 1', /user +ada/, '"channel": "web"', '"total": 99'],
    json: { id: eventId, type: 'OrderPlaced', data: { total: 99 }, userId: 'ada', position: 1 },
  })

  const unknown = await shop.run('events show 00000000-0000-4000-8000-000000000000')

  expect(unknown).toMatchObject({ code: 1, stdout: '' })
  expect(unknown.stderr).toMatch(/There is no event .*\n +try: rillflow events tail/)
})

test('events append stores an event once per key, and exits with 1 after a conflict', async () => {
  await shop.shows(['events', 'append', 'order-2', 'OrderPlaced', '{"total":5}', '--key', 'first'], {
    text: [/OrderPlaced to order-2, version 1, position \d+\./],
    json: { stream: 'order-2', version: 1 },
  })

  const conflict = await shop.run(['events', 'append', 'order-2', 'OrderPlaced', '{}', '--expected', 'empty', '--json'])

  expect(conflict).toMatchObject({ code: 1, stdout: '' })
  expect(JSON.parse(conflict.stderr)).toMatchObject({
    error: { code: 'version_conflict', stream: 'order-2', actual: 1 },
  })
})

test('events import loads what events export wrote', async () => {
  const file = join(shop.path, 'events.ndjson')
  const exported = await shop.run(['events', 'export', '--category', 'order', '--output', file, '--json'])
  expect(exported).toMatchObject({ code: 0 })
  const lines = (await readFile(file, 'utf8'))
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))
  expect(lines[0]).toMatchObject({ stream: 'order-1', type: 'OrderPlaced', position: 1 })
  const moved = lines.map(({ id, stream, ...rest }) => JSON.stringify({ ...rest, stream: `moved-${stream}` }))
  await writeFile(file, `${moved.join('\n')}\n`)

  const imported = await shop.run('events import events.ndjson --name move --json')
  const again = await shop.run('events import events.ndjson --name move')

  expect(JSON.parse(imported.stdout)).toMatchObject({ events: lines.length, resumed: 0 })
  expect(again.stdout).toMatch(`Imported ${lines.length} events (${lines.length} by an earlier call)`)
})

test('events export fails if it cannot write its file, and - is stdout', async () => {
  const refused = await shop.run('events export --output nowhere/events.ndjson')
  const piped = await shop.run('events export --to 2 --output -', { env: {} })
  const later = await shop.run('events export --after 1 --to 2 --output -', { env: {} })

  expect(refused).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(/^error: .*nowhere\/events/) })
  expect(refused.stderr).not.toContain('    at ')
  expect(piped.stdout.split('\n').map(line => line && JSON.parse(line).position)).toEqual([1, 2, ''])
  expect(later.stdout.split('\n').map(line => line && JSON.parse(line).position)).toEqual([2, ''])
})

test('events import names the line with the mistake', async () => {
  const wrong = {
    no: 'is not JSON',
    '{"type":"OrderPlaced"}': 'must be an object with "stream" and "type"',
    '{"stream":"order-9","type":"OrderPlaced"}': 'has no "data"',
    '{"stream":"order-9","type":"OrderPlaced","data":{},"createdAt":"soon"}': '"createdAt" must be a time',
  }
  for (const [line, reason] of Object.entries(wrong)) {
    await writeFile(join(shop.path, 'wrong.ndjson'), `{"stream":"order-9","type":"OrderPlaced","data":{}}\n${line}\n`)
    const { code, stderr } = await shop.run('events import wrong.ndjson')

    expect({ line, code }).toEqual({ line, code: 2 })
    expect(stderr).toContain('wrong.ndjson:2')
    expect(stderr).toContain(reason)
  }
})

test('streams are listed, shown, archived and restored', async () => {
  await shop.shows('streams list --category cart', {
    text: [/^STREAM +VERSION +POSITION +STATE +LAST EVENT\ncart-1 +1 +3 +open/],
    json: { items: [{ stream: 'cart-1', version: 1, lastPosition: 3, state: 'open' }] },
  })
  await shop.shows('streams show order-1', {
    text: [/stream +order-1\nversion +2\nstate +open/, /order-1@2 +OrderPaid/],
    json: { stream: 'order-1', lastPosition: 2, events: [{ version: 1 }, { version: 2 }] },
  })
  expect(await shop.run('streams show ordr-1')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('There is no stream ordr-1. Did you mean "order-1"?'),
  })
  await shop.shows(['streams', 'archive', 'cart-1', '--reason', 'left alone'], {
    text: ['Archived cart-1.'],
    json: { stream: 'cart-1', state: 'archived', reason: 'left alone' },
  })
  await shop.shows('streams restore cart-1', {
    text: ['Restored cart-1.'],
    json: { stream: 'cart-1', state: 'open' },
  })

  const unknown = await shop.run('streams archive cart-7')

  expect(unknown).toMatchObject({ code: 1 })
  expect(unknown.stderr).toContain('try: rillflow streams list')
})

test('streams resolve always gives the same stream for an alias', async () => {
  const first = await shop.run('streams resolve invoice:1 --category invoice')
  const second = await shop.run('streams resolve invoice:1 --json')

  expect(first.stdout).toMatch(/^invoice-[0-9a-f-]{36}\n$/)
  expect(JSON.parse(second.stdout)).toEqual({ alias: 'invoice:1', stream: first.stdout.trim() })
})

test('a stream is ended for good only when it is confirmed', async () => {
  await shop.run(['events', 'append', 'cart-9', 'CartOpened', '{}'])

  const asked = await shop.run('streams tombstone cart-9')
  const ended = await shop.run('streams tombstone cart-9 --reason test --yes')
  const refused = await shop.run(['events', 'append', 'cart-9', 'CartOpened', '{}'])

  expect(asked).toMatchObject({ code: 2, stderr: expect.stringContaining('end stream cart-9 for good') })
  expect(ended).toMatchObject({ code: 0, stdout: 'Tombstoned cart-9.\n' })
  expect(refused.code).toBe(1)
})

test('events types and events position tell what is in the log, and events show --stored how it is stored', async () => {
  const types = await shop.run('events types --json')
  const { position } = JSON.parse((await shop.run('events position 0s --json')).stdout)
  const before = await shop.run('events position 1970-01-02T00:00:00Z')
  await shop.shows(`events show ${eventId} --stored`, {
    text: ['OrderPlaced, schema 1', '{"total": 99}'],
    json: { type: 'OrderPlaced', schemaVersion: 1, data: '{"total": 99}' },
  })

  expect(JSON.parse(types.stdout).items.map((each: { type: string }) => each.type)).toContain('CartOpened')
  expect(position).toBeGreaterThanOrEqual(3)
  expect(before.stdout).toBe('0\n')
})
