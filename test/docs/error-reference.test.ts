/** The reference of errors is generated from their declarations. */
import { expect, test } from 'vitest'
import * as errors from '../../src/errors.ts'
import { expectFile } from '../schema/generated-file.ts'
import { errorReference } from './error-reference.ts'

test('docs/reference/errors.md is generated from the errors', async () => {
  expectFile('docs/reference/errors.md', await errorReference(), 'test/docs/error-reference')
})

test('every exported error is in the reference, with a message that names its subject', async () => {
  const reference = await errorReference()

  const kinds = Object.entries(errors).filter(([, value]) => typeof value === 'function' && 'code' in value)
  const missing = kinds.map(([name]) => name).filter(name => !reference.includes(`\n\`${name}\``))

  expect(kinds.length).toBeGreaterThan(100)
  expect(missing).toEqual([])
  expect(reference).not.toMatch(/undefined|\[object/)
})
