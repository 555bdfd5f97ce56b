/** A read model that is rebuilt during appends, by processes of which one is killed in the middle. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { postgresUrl } from '../../support/engines.ts'
import { forkProgram } from '../../support/program.ts'
import { waitUntil } from '../../support/wait.ts'
import { long } from '../chaos.ts'
import { effectProblems } from './check-effects.ts'
import type { Message, RebuilderOptions } from './rebuilder-program.ts'
import { deadlineMs, limitMs, openScenario, type Scenario } from './scenario.ts'

test(
  'a read model rebuilt repeatedly under load, by another process when one is killed, contains each event once',
  async () => {
    await using scenario = await openScenario({ consumers: 0 })
    const options: RebuilderOptions = { url: postgresUrl(), schema: scenario.schema, leaseMs: 1_500 }
    const [first, second] = [startProcess(options), startProcess(options)]
    try {
      await Promise.all([first.received('ready'), second.received('ready')])
      await waitUntil(async () => (await rows(scenario)) > 100, { deadlineMs, what: 'rows in the read model' })

      for (let round = 0; round < (long ? 30 : 1); round++) {
        first.child.send('rebuild')
        await first.received('rebuilt')
      }
      first.child.send('rebuild')
      await first.received('begun')
      first.child.kill('SIGKILL')
      // Another process can continue the rebuild only when the lease has expired.
      await waitUntil(() => rebuildsIn(second), { deadlineMs, what: 'a rebuild by the other process' })
      const { log } = await scenario.drain()
      const last = log.at(-1)!.position
      await waitUntil(() => hasReached(scenario, last), { deadlineMs, what: `the read model at ${last}` })

      const found = await scenario.query<{ position: string }>(
        'select s.position::text from ~sales as s order by s.position',
      )
      const effects = found.map(({ position }) => ({ consumer: 'sales', position }))
      expect(effectProblems(['sales'], log, effects)).toEqual([])
      expect(await scenario.query('select from ~dead_letters')).toEqual([])
    } finally {
      first.child.kill('SIGKILL')
      second.child.kill('SIGKILL')
    }
  },
  limitMs,
)

interface Rebuilder {
  readonly child: ChildProcess
  /** Resolves with the next message, which must be this one. */
  received(message: Message): Promise<void>
  next(): Promise<Message>
}

function startProcess(options: RebuilderOptions): Rebuilder {
  const child = forkProgram(new URL('rebuilder-program.ts', import.meta.url))
  const messages: Message[] = []
  child.on('message', message => messages.push(message as Message))
  child.send(options)
  const next = async (): Promise<Message> => {
    if (messages.length === 0) await once(child, 'message', { signal: AbortSignal.timeout(deadlineMs) })
    return messages.shift()!
  }
  return {
    child,
    next,
    async received(wanted) {
      let message = await next()
      // Each rebuild reports its begin, whether the test waits for that or not.
      if (message === 'begun' && wanted !== 'begun') message = await next()
      expect(message).toEqual(wanted)
    },
  }
}

async function rebuildsIn({ child, next }: Rebuilder): Promise<boolean> {
  child.send('rebuild')
  let message = await next()
  while (message === 'begun') message = await next()
  if (message === 'rebuilt') return true
  if (typeof message === 'object' && message.error.includes('RebuildRunning')) return false
  throw new Error(JSON.stringify(message))
}

async function rows(scenario: Scenario): Promise<number> {
  const [row] = await scenario.query<{ count: number }>('select count(*)::integer as count from ~sales')
  return row!.count
}

async function hasReached(scenario: Scenario, position: number): Promise<boolean> {
  return (
    (await scenario.query('select from ~consumers where name = $1 and checkpoint >= $2', ['sales', position])).length >
    0
  )
}
