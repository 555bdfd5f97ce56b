import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { describeLocation } from '../../src/cli/open.ts'
import { type Folder, openFolder, patienceMs } from '../cli/shop.ts'

const patient = { timeout: patienceMs }
/** Clears the screen, sets the title of the window, turns the direction of writing, and ends a line. */
const hostile = 'order-\u001b[2J\u001b]0;mine\u0007\u009b31m\u202e\r\u0008x'
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are the ones to find
const obeyed = /[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]/

let shop: Folder

beforeAll(async () => {
  shop = await openFolder({
    async seed(store) {
      await store.events.append(hostile, { type: 'Order\u001b[8mPlaced', data: { note: hostile } })
      await store.documents('customers').put(hostile, { name: hostile })
    },
  })
}, patienceMs)

test('control characters in names and data never reach a terminal', patient, async () => {
  const [event] = await shop.use(store => store.events.read(hostile).toArray())
  const lines: (string | string[])[] = ['streams list', 'events tail', 'events tail --json', 'status']
  lines.push(['streams', 'show', hostile], ['documents', 'get', 'customers', hostile], 'documents list customers')
  lines.push(['streams', 'archive', `${hostile}!`], ['consumers', 'pause', hostile], `events show ${event!.id}`)
  lines.push('audit list', ['consumers', 'status', hostile, '--json'])
  for (const line of lines) {
    const { stdout, stderr } = await shop.run(line)
    expect({ line, found: obeyed.exec(stdout + stderr)?.[0] }).toEqual({ line, found: undefined })
  }
})

test('events export writes a new file and never replaces one', patient, async () => {
  const file = join(shop.path, 'events.ndjson')
  await writeFile(file, 'precious')

  const refused = await shop.run(`events export --output ${file}`)
  const written = await shop.run(`events export --output ${file}.new`)

  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('[export_exists]') })
  expect(await readFile(file, 'utf8')).toBe('precious')
  expect(written).toMatchObject({ code: 0, stdout: expect.stringContaining('Exported 1 event') })
})

test('a password is not printed, wherever it stands in the url', () => {
  const shown = (url: string): string => describeLocation({ url, schema: undefined }, undefined)

  expect(shown('postgres://ada:secret@db:5433/shop')).toBe('postgres://ada:***@db:5433/shop')
  expect(shown('postgres://db/shop?user=ada&password=secret&sslpassword=secret')).toBe('postgres://db/shop')
  expect(shown('postgres:///shop?host=db&password=secret')).toBe('postgres:///shop')
  expect(shown('host=db password=secret')).toBe('a server')
})
