/** The reference of the command line is made from it, and each command is run by a test. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { allCommands } from '../../src/cli/arguments.ts'
import { root } from '../../src/cli/commands/commands.ts'
import { expectFile } from '../schema/golden.ts'
import { commandReference } from './command-reference.ts'

test('docs/reference/cli.md is what the commands say of themselves', async () => {
  expectFile('docs/reference/cli.md', await commandReference(root), 'test/docs')
})

test('every command has an example of itself, and options that a person can read', async () => {
  for await (const { path, leaf } of allCommands(root)) {
    const { examples, options } = await leaf.load()

    expect(examples.length, path.join(' ')).toBeGreaterThan(0)
    for (const example of examples) expect(example).toContain(`rillflow ${path.join(' ')}`)
    for (const each of [leaf, ...Object.values(options)]) expect(each.summary).toMatch(/^[^a-z\s].*[^.]$/)
  }
})

test('every command is run by an acceptance test', async () => {
  const files = readdirSync('test/cli').filter(name => name.endsWith('.test.ts'))
  const text = files
    .map(name => readFileSync(`test/cli/${name}`, 'utf8'))
    .join('\n')
    .replaceAll(/', '/g, ' ')

  const untested: string[] = []
  for await (const { path } of allCommands(root)) if (!text.includes(path.join(' '))) untested.push(path.join(' '))

  expect(untested).toEqual([])
})
