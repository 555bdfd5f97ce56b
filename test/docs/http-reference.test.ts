/** The reference of the HTTP API is generated from its routes, and every line of the command line in it can be typed. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { findCommand, isGroup, parseLine } from '../../src/cli/arguments.ts'
import { root } from '../../src/cli/commands/commands.ts'
import { openApiDocument } from '../../src/server/api/openapi.ts'
import { routes } from '../../src/server/api/routes/routes.ts'
import { expectFile } from '../schema/generated-file.ts'
import { exampleOf, httpReference } from './http-reference.ts'

test('docs/reference/http-api.md is generated from the table of routes', () => {
  expectFile('docs/reference/http-api.md', httpReference(routes), 'test/docs')
})

test('docs/reference/openapi.json is generated from the table of routes', () => {
  expectFile('docs/reference/openapi.json', `${JSON.stringify(openApiDocument(routes, ''), null, 2)}\n`, 'test/docs')
})

test('every route is described once, and every answer has a type', () => {
  const contract = readFileSync('src/server/api/contract.ts', 'utf8')
  const keys = [...contract.matchAll(/^ {2}'([A-Z]+ [^']+)': \{/gm)].map(([, key]) => key!)
  const served = [...routes.map(each => each.key), 'GET /openapi.json']

  expect(served.toSorted()).toEqual(keys.toSorted())
  for (const { summary } of routes) expect(summary).toMatch(/^[A-Z].*[^.]$/)
})

test('the line of each route is one that the command line understands', async () => {
  const wrong: string[] = []
  for (const { key, cli } of routes) {
    if (cli === undefined) continue
    const words = exampleOf(cli)
      .replace(/^rillflow /, '')
      .replaceAll("'", '')
      .split(' ')
    try {
      const { path, entry, rest } = await findCommand(root, words)
      if (isGroup(entry)) wrong.push(`${key}: ${cli}: no verb`)
      else parseLine(await entry.load(), path, rest)
    } catch (error) {
      wrong.push(`${key}: ${cli}: ${(error as Error).message}`)
    }
  }

  expect(wrong).toEqual([])
})
