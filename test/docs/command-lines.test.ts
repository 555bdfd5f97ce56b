/** Every line of the program in docs, help and messages can be typed: its command and its options exist. */
import { expect, test } from 'vitest'
import { allCommands, findCommand, isGroup, parseLine } from '../../src/cli/arguments.ts'
import type { Commands } from '../../src/cli/command.ts'
import { root as commands } from '../../src/cli/commands/commands.ts'
import { readSources } from '../support/source-files.ts'
import { pages } from './pages.ts'

const program = /(?:\brillflow|dist\/cli\/cli\.js) (?=[a-z-])/

test('every line of a block of the docs', async () => {
  // The reference is generated from the commands, with their examples.
  const written = pages.filter(({ path }) => path !== 'docs/reference/cli.md')
  const lines = written.flatMap(({ path, text }) =>
    [...text.matchAll(/^```(\w*)\n(.*?)^```/gms)]
      .filter(([, language]) => language === '' || language === 'sh')
      .flatMap(([, , block]) => block!.split('\n'))
      .filter(line => /^ *(\$ |npx |node )/.test(line) && program.test(line))
      .map(line => ({ path, line })),
  )

  const wrong = await wrongAmong(lines)

  expect(lines.length).toBeGreaterThan(5)
  expect(wrong).toEqual([])
})

test('every line within a sentence of the docs, though its arguments may be left out', async () => {
  const lines = pages.flatMap(({ path, text }) =>
    [...text.matchAll(/`(rillflow [a-z-][^`]*)`/g)].map(([, line]) => ({ path, line: line!.replaceAll('\n', ' ') })),
  )

  const wrong = await wrongAmong(lines, { isShort: true })

  expect(lines.length).toBeGreaterThan(20)
  expect(wrong).toEqual([])
})

test('every example of a command', async () => {
  const lines: Line[] = []
  for await (const { path, leaf } of allCommands(commands))
    for (const line of (await leaf.load()).examples) lines.push({ path: path.join(' '), line })

  expect(await wrongAmong(lines)).toEqual([])
})

test('every command that an error or the doctor suggests', async () => {
  const entries = await commands.commands()
  const lines = readSources('src/cli', 'src/upkeep').flatMap(({ path, text }) =>
    [...text.matchAll(/(?:['`(]|\b(?:or|then) )rillflow ([a-z-]+(?: [a-z-]+)?)/g)].map(([, words]) => ({
      path,
      line: `rillflow ${nounAndVerb(entries, words!)}`,
    })),
  )

  expect(lines.length).toBeGreaterThan(50)
  expect(await wrongAmong(lines, { isShort: true })).toEqual([])
})

interface Line {
  readonly path: string
  readonly line: string
}

async function wrongAmong(lines: readonly Line[], { isShort = false } = {}): Promise<string[]> {
  const wrong: string[] = []
  for (const { path, line } of lines) {
    try {
      await read(line)
    } catch (error) {
      const { message } = error as Error
      if (!isShort || !/ needs /.test(message)) wrong.push(`${path}: ${line}: ${message}`)
    }
  }
  return wrong
}

/** Like the program, up to where it would run the command. */
async function read(line: string): Promise<void> {
  const [own = ''] = line
    .slice(line.search(program))
    .replace(program, '')
    .split(/ (?:\|{1,2}|>|&&) |\)$|, /)
  const words = [...own.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, bare]) => single ?? double ?? bare!,
  )
  const { path, entry, rest } = await findCommand(commands, words)
  if (!isGroup(entry)) parseLine(await entry.load(), path, rest)
}

/** The words of the command, without the word of a sentence that may follow. */
function nounAndVerb(entries: Commands, words: string): string {
  const [noun = ''] = words.split(' ')
  const entry = entries[noun]
  return entry === undefined || isGroup(entry) ? words : noun
}
