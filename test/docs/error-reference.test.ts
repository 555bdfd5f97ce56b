/** The reference of errors is generated from their declarations. */
import { existsSync, readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import * as errors from '../../src/errors.ts'
import { expectFile } from '../schema/generated-file.ts'
import { errorPages, errorReference } from './error-reference.ts'

test('docs/reference/errors.md is generated from the errors', async () => {
  expectFile('docs/reference/errors.md', await errorReference(), 'test/docs/error-reference')
})

test('every error has a page, and knows where it is', async () => {
  const generated = await errorPages()

  for (const [path, text] of generated) expectFile(path, text, 'test/docs/error-reference')
  expect(readdirSync('docs/reference/errors').map(name => `docs/reference/errors/${name}`)).toEqual(
    [...generated.keys()].sort(),
  )
  const conflict = new errors.VersionConflict({ stream: 'order-1', expected: 1, actual: 2 })
  expect(existsSync(conflict.docs.replace('node_modules/rillflow/', ''))).toBe(true)
  expect(generated.get('docs/reference/errors/version_conflict.md')).toContain('- `actual`: `number`')
})

test('every exported error is in the reference, with a message that names its subject', async () => {
  const reference = await errorReference()

  const kinds = Object.entries(errors).filter(([, value]) => typeof value === 'function' && 'code' in value)
  const missing = kinds.map(([name]) => name).filter(name => !reference.includes(`\n\`${name}\``))

  expect(kinds.length).toBeGreaterThan(100)
  expect(missing).toEqual([])
  expect(reference).not.toMatch(/undefined|\[object/)
})
