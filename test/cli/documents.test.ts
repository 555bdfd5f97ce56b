import { beforeAll, expect, test } from 'vitest'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

let shop: Folder

beforeAll(async () => {
  shop = await openFolder({
    config: `
      import { defineCollection, defineConfig } from 'rillflow'
      export default defineConfig({ collections: [defineCollection('customers', { indexes: ['email'] })] })
    `,
  })
  if (onServer) await shop.run('schema sync')
  await shop.use(async store => {
    const customers = store.documents('customers')
    for (const [id, age] of [
      ['ada', 36],
      ['bo', 17],
      ['cleo', 52],
    ] as const)
      await customers.put(id, { name: id, age, email: `${id}@shop.example` })
  })
}, patienceMs)

test('documents are put and got', async () => {
  await shop.shows(['documents', 'put', 'customers', 'dev', '{"name":"dev","age":20}', '--user', 'eve'], {
    text: ['Put customers/dev, version 1.'],
    json: { collection: 'customers', id: 'dev' },
  })
  await shop.shows('documents get customers dev', {
    text: [/id +dev/, /updated by +eve/, '"name": "dev"'],
    json: { id: 'dev', data: { name: 'dev', age: 20 }, updatedBy: 'eve' },
  })
})

test('RB-80: a document that is not there is an error of every command about one', async () => {
  for (const verb of onServer ? ['get', 'soft-delete', 'restore'] : ['soft-delete']) {
    const { code, stdout, stderr } = await shop.run(`documents ${verb} customers nobody`)

    expect({ verb, code, stdout }).toEqual({ verb, code: 1, stdout: '' })
    expect(stderr).toContain('[document_not_found]')
  }
})

test('a collection that there is not is named, with the nearest one', async () => {
  const { code, stdout, stderr } = await shop.run('documents query custmers')

  expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
  expect(stderr).toMatch(/There is no collection "custmers" in schema \w+\. Did you mean "customers"\?/)
  expect(stderr).toContain('try: rillflow documents collections')
})

test('documents query finds what a filter describes, in order', async () => {
  await shop.shows(
    [
      'documents',
      'query',
      'customers',
      '--where',
      '{"age":{"$gte":30}}',
      '--order-by',
      'age',
      '--order-as',
      'number',
      '--descending',
    ],
    {
      text: [/^ID +VERSION +UPDATED +DATA\ncleo .*\nada /],
      json: { items: [{ id: 'cleo' }, { id: 'ada' }] },
    },
  )

  const wrong = await shop.run(['documents', 'query', 'customers', '--where', '{"age":{"$above":30}}'])
  const notJson = await shop.run(['documents', 'query', 'customers', '--where', 'age>30'])

  expect(wrong).toMatchObject({ code: 2, stdout: '' })
  expect(notJson.stderr).toContain('--where must be JSON')
})

test('a document that is soft-deleted is hidden until it is restored', async () => {
  const deleted = await shop.run('documents soft-delete customers bo --json')
  expect(JSON.parse(deleted.stdout)).toEqual({ collection: 'customers', id: 'bo', version: 2, deleted: true })
  const hidden = await shop.run('documents query customers --json')
  expect(JSON.parse(hidden.stdout).items.map((each: { id: string }) => each.id)).not.toContain('bo')

  const restored = await shop.run('documents restore customers bo')

  expect(restored).toMatchObject({ code: 0, stdout: expect.stringContaining('Restored customers/bo, version') })
})

test('RB-80: the index advisor names the index and the table it is for', async () => {
  await shop.shows(['documents', 'index-advisor', 'customers', '--where', '{"age":{"$gte":18}}'], {
    text: [/^INDEX +TABLE .*\n\{ path: 'age', as: 'number' \} +customers /],
    json: { table: 'customers', advice: [{ index: "{ path: 'age', as: 'number' }" }] },
  })
})

test('the index advisor prints the statements of indexes that the line names', async () => {
  await shop.shows('documents index-advisor customers --gin --field email --field address.city', {
    text: [
      /^create index "customers_body"\n {2}on "\w+"\."customers"\n {2}using gin \(body jsonb_path_ops\);\n/,
      /create index "customers_email"\n/,
      /create index "customers_address_city"\n/,
    ],
    json: { collection: 'customers', statements: [{}, {}, {}].map(() => expect.stringContaining('create index')) },
  })
})

test('RB-43: documents explain gives the plan of the statement with its values', async () => {
  await shop.shows(['documents', 'explain', 'customers', '--where', '{"email":"ada@shop.example"}', '--analyze'], {
    text: [/(Scan|Index).*customers/, /actual time|actual rows/],
    json: { collection: 'customers' },
  })
})
