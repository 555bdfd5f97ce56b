import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import { engine, freshSchema, postgresUrl } from '../support/engines.ts'
import { filesLoaded } from '../support/fresh-node.ts'

test('a program that uses no telemetry loads none: no OpenTelemetry, no server, no breadcrumbs', async () => {
  const onServer = `
    const store = await openStore({ url: process.env.DATABASE_URL, schema: '${freshSchema()}', migrate: true })
    await store.events.append('order-1', { type: 'OrderPlaced', data: {} })
    await store.close()`
  const files = await filesLoaded(
    // Starting the embedded engine takes seconds, and loads nothing more of the library that could be telemetry.
    `const { openStore } = await import('rillflow'); ${engine === 'pglite' ? '' : onServer}`,
    { DATABASE_URL: engine === 'pglite' ? '' : postgresUrl() },
  )

  // A part that is loaded on demand has its own file, named after it.
  const unasked = /@opentelemetry|\/dist\/integrations\/|\/chunks\/(app|breadcrumbs)-/
  expect(files.some(file => file.endsWith('/dist/index.js'))).toBe(true)
  expect(files.filter(file => unasked.test(file))).toEqual([])
  const onDemand = readdirSync('dist/chunks').filter(file => /^(app|breadcrumbs)-\w+\.js$/.test(file))
  expect(onDemand).toHaveLength(2)
})
