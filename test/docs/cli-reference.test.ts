/** The reference of the command line is generated from the commands, and a test runs each of them. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { allCommands } from '../../src/cli/arguments.ts'
import { root } from '../../src/cli/commands/commands.ts'
import { expectFile } from '../schema/generated-file.ts'
import { commandReference } from './command-reference.ts'

test('docs/reference/cli.md is generated from the descriptions of the commands', async () => {
  expectFile('docs/reference/cli.md', await commandReference(root), 'test/docs')
})

test('every command has an example of itself, and every option a summary', async () => {
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
