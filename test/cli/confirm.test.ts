import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { confirm } from '../../src/cli/confirm.ts'

/** Somebody at a terminal, who answers once the question is there. */
async function answering(keys: string): Promise<{ given: unknown; asked: string; interrupts: number }> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true })
  const stderr = Object.assign(new PassThrough({ encoding: 'utf8' }), { isTTY: true, columns: 200 })
  const controller = new AbortController()
  const consent = { isGiven: false, isDryRun: false, line: 'rillflow schema down' }
  let asked = ''
  let interrupts = 0
  const hear = (): void => {
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
    consent,
    { print() {} },
    {
      ...{ stdin, stderr },
      interrupt: { signal: controller.signal, hear },
    },
  ).catch((error: unknown) => error)
  return { given, asked, interrupts }
}

test('what destroys something asks at a terminal, and only yes is yes', async () => {
  const [yes, short, no, nothing, end] = await Promise.all(['yes\r', 'Y\r', 'no\r', '\r', '\u0004'].map(answering))

  expect(yes!.asked).toContain('This will drop schema shop and everything in it. Go on? [y/N] ')
  expect([yes, short].map(each => each!.given)).toEqual([true, true])
  for (const each of [no, nothing, end])
    expect(each!.given).toMatchObject({
      code: 'not_confirmed',
      message: 'Nothing was done: the question was not answered with yes.',
    })
})

test('Ctrl-C at the question interrupts the command', async () => {
  const { given, interrupts } = await answering('\u0003')

  expect(given).toMatchObject({ name: 'AbortError' })
  expect(interrupts).toBe(1)
})
