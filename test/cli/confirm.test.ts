import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { confirm } from '../../src/cli/confirm.ts'

/** Answers at a terminal as soon as the question appears. */
async function answering(keys: string): Promise<{ given: unknown; asked: string; interrupts: number }> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true })
  const stderr = Object.assign(new PassThrough({ encoding: 'utf8' }), { isTTY: true, columns: 200 })
  const controller = new AbortController()
  const confirmation = { isGiven: false, isDryRun: false, line: 'rillflow schema down' }
  let asked = ''
  let interrupts = 0
  const interrupt = (): void => {
    interrupts++
    controller.abort()
  }
  stderr.on('data', text => {
    const isNew = !asked.includes('[y/N]')
    asked += text
    if (isNew && asked.includes('[y/N]')) stdin.write(keys)
  })
  const given = await confirm(
    'drop schema shop and everything in it',
    confirmation,
    { print() {} },
    {
      ...{ stdin, stderr },
      interrupt: { signal: controller.signal, interrupt },
    },
  ).catch((error: unknown) => error)
  return { given, asked, interrupts }
}

test('a destructive command asks on a terminal, and only yes confirms it', async () => {
  const [yes, short, no, nothing, end] = await Promise.all(['yes\r', 'Y\r', 'no\r', '\r', '\u0004'].map(answering))

  expect(yes!.asked).toContain('This will drop schema shop and everything in it. Continue? [y/N] ')
  expect([yes, short].map(each => each!.given)).toEqual([true, true])
  for (const each of [no, nothing, end])
    expect(each!.given).toMatchObject({
      code: 'not_confirmed',
      message: 'Nothing was done, because the answer was not yes.',
    })
})

test('Ctrl-C at the question interrupts the command', async () => {
  const { given, interrupts } = await answering('\u0003')

  expect(given).toMatchObject({ name: 'AbortError' })
  expect(interrupts).toBe(1)
})
