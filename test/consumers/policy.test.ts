import { expect, test } from 'vitest'
import {
  checkPolicy,
  custom,
  type Decision,
  deadLetter,
  decide,
  type Failure,
  type FailurePolicy,
  failFast,
  logAndSkip,
  policyFor,
  retryWithBackoff,
} from '../../src/consumers/run/policy.ts'
import { toRecordedEvent } from '../../src/events/event.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

function failure(attempt: number, type = 'OrderPlaced'): Failure {
  const event = toRecordedEvent(7, 'order-1', 1, id, type, 1, { total: 99 }, {}, id, null, null, new Date(0))
  return { consumer: 'mailer', event, error: new Error('declined'), attempt }
}

/** The decisions after each failure of one event, until it is not tried again. */
async function course(policy: FailurePolicy, type?: string): Promise<Decision[]> {
  const decisions: Decision[] = []
  for (let attempt = 1; decisions.length < 20; attempt++) {
    const { decision } = await decide(policy, failure(attempt, type))
    decisions.push(decision)
    if (decision !== 'retry') break
  }
  return decisions
}

test('each strategy follows its own sequence of decisions', async () => {
  expect(await course(failFast())).toEqual(['stop'])
  expect(await course(logAndSkip())).toEqual(['skip'])
  expect(await course(deadLetter())).toEqual(['retry', 'retry', 'retry', 'dead-letter'])
  expect(await course(retryWithBackoff())).toEqual(['retry', 'retry', 'retry', 'stop'])
  expect(await course(retryWithBackoff({ retries: 1, end: 'skip' }))).toEqual(['retry', 'skip'])
  expect(await course(deadLetter({ retries: 0 }))).toEqual(['dead-letter'])
  expect(await course(logAndSkip({ retries: 2 }))).toEqual(['retry', 'retry', 'skip'])
})

test('AB-01: waits double from the first one up to the maximum, and the number of tries is limited', async () => {
  const policy = retryWithBackoff({ retries: 7, baseMs: 100, maxMs: 1_000, jitter: 0, end: 'dead-letter' })
  const waits: number[] = []

  for (let attempt = 1; attempt <= 7; attempt++) {
    const decided = await decide(policy, failure(attempt))
    if (decided.decision === 'retry') waits.push(decided.delayMs)
  }
  const last = await decide(policy, failure(8))

  expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000, 1_000])
  expect(last).toEqual({ decision: 'dead-letter' })
})

test('a share of each wait is random', async () => {
  const policy = retryWithBackoff({ baseMs: 1_000, jitter: 0.5 })

  for (let i = 0; i < 50; i++) {
    const decided = await decide(policy, failure(1))

    expect(decided).toMatchObject({ decision: 'retry' })
    const { delayMs } = decided as { delayMs: number }
    expect(delayMs).toBeGreaterThanOrEqual(500)
    expect(delayMs).toBeLessThanOrEqual(1_000)
  }
})

test('a type may have its own policy, and other types keep the common one', async () => {
  const policy = deadLetter({ retries: 1, byType: { OrderShipped: failFast(), OrderPaid: logAndSkip() } })

  expect(await course(policy, 'OrderShipped')).toEqual(['stop'])
  expect(await course(policy, 'OrderPaid')).toEqual(['skip'])
  expect(await course(policy, 'OrderPlaced')).toEqual(['retry', 'dead-letter'])
  expect(policyFor(policy, 'toString')).toBe(policy)
})

test('a custom policy decides after each failure, with the error and the number of attempts', async () => {
  const seen: unknown[] = []
  const policy = custom(async ({ consumer, event, error, attempt }) => {
    seen.push([consumer, event.type, (error as Error).message, attempt])
    return attempt < 3 ? 'retry' : 'dead-letter'
  })

  const decisions = await course(policy)

  expect(decisions).toEqual(['retry', 'retry', 'dead-letter'])
  expect(seen).toEqual([1, 2, 3].map(attempt => ['mailer', 'OrderPlaced', 'declined', attempt]))
})

test('a custom policy may return any of the four decisions at once, and its waits grow as well', async () => {
  for (const answer of ['stop', 'skip', 'dead-letter'] as const)
    expect(
      await decide(
        custom(() => answer),
        failure(1),
      ),
    ).toEqual({ decision: answer })
  const again = custom(() => 'retry', { baseMs: 10, jitter: 0 })

  expect(await decide(again, failure(1))).toEqual({ decision: 'retry', delayMs: 10 })
  expect(await decide(again, failure(3))).toEqual({ decision: 'retry', delayMs: 40 })
})

test('an answer that is not a decision is refused, and an error of the function is passed on', async () => {
  const strange = custom(() => 'ignore' as Decision)
  const broken = custom(() => {
    throw new Error('no idea')
  })

  await expect(decide(strange, failure(1))).rejects.toMatchObject({ code: 'invalid_option', option: 'policy' })
  await expect(decide(broken, failure(1))).rejects.toThrow('no idea')
})

test('AB-08: an invalid policy is refused when it is made', () => {
  const made: (() => unknown)[] = [
    () => custom(undefined as never),
    () => custom('retry' as never),
    () => retryWithBackoff({ end: 'explode' as 'stop' }),
    () => checkPolicy({ ...failFast(), end: undefined as never }),
    () => checkPolicy('deadLetter' as never),
    () => checkPolicy(undefined as never),
    () => deadLetter({ retries: -1 }),
    () => deadLetter({ retries: 1.5 }),
    () => deadLetter({ retries: Number.POSITIVE_INFINITY }),
    () => deadLetter({ baseMs: -1 }),
    () => deadLetter({ maxMs: Number.NaN }),
    () => deadLetter({ jitter: 2 }),
    () => deadLetter({ byType: { OrderPaid: { ...failFast(), retries: -1 } } }),
    () => deadLetter({ byType: { OrderPaid: 'skip' as never } }),
  ]

  for (const make of made) expect(make).toThrow(expect.objectContaining({ code: 'invalid_option', option: 'policy' }))
})
