import { expect, test } from 'vitest'
import {
  type Decision,
  decide,
  type Failure,
  type FailureOptions,
  type FailurePolicy,
  failurePolicy,
} from '../../src/consumers/run/policy.ts'
import { toRecordedEvent } from '../../src/events/read/rows.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

function failure(attempt: number, type = 'OrderPlaced'): Failure {
  const event = toRecordedEvent(7, 'order-1', 1, id, type, 1, { total: 99 }, {}, id, null, null, new Date(0))
  return { consumer: 'mailer', event, error: new Error('declined'), attempt }
}

function policyOf(options: FailureOptions = {}): FailurePolicy {
  return failurePolicy('Projection "mailer"', options)
}

/** The decisions after each failure of one event, until it is not tried again. */
async function course(policy: FailurePolicy, type?: string): Promise<Decision['decision'][]> {
  const decisions: Decision['decision'][] = []
  for (let attempt = 1; decisions.length < 20; attempt++) {
    const { decision } = await decide(policy, failure(attempt, type))
    decisions.push(decision)
    if (decision !== 'retry') break
  }
  return decisions
}

test('each policy follows its own sequence of decisions', async () => {
  expect(await course(policyOf({ retries: 0, onFailure: 'stop' }))).toEqual(['stop'])
  expect(await course(policyOf({ retries: 0, onFailure: 'skip' }))).toEqual(['skip'])
  expect(await course(policyOf())).toEqual(['retry', 'retry', 'retry', 'deadLetter'])
  expect(await course(failurePolicy('Processor "mailer"', {}, 'stop'))).toEqual(['retry', 'retry', 'retry', 'stop'])
  expect(await course(policyOf({ retries: 1, onFailure: 'skip' }))).toEqual(['retry', 'skip'])
  expect(await course(policyOf({ retries: 0 }))).toEqual(['deadLetter'])
  expect(await course(policyOf({ retries: 2, onFailure: 'skip' }))).toEqual(['retry', 'retry', 'skip'])
})

test('an error that cannot be retried ends the event at the first failure', async () => {
  expect(await course(policyOf({ isRetryable: () => false }))).toEqual(['deadLetter'])
  expect(await course(policyOf({ isRetryable: error => (error as Error).message === 'declined', retries: 1 }))).toEqual(
    ['retry', 'deadLetter'],
  )
})

test('AB-01: waits double from the first one up to the maximum, and the number of tries is limited', async () => {
  const policy = policyOf({ retries: 7, backoff: { baseMs: 100, maxMs: 1_000, jitter: 0 } })
  const waits: number[] = []

  for (let attempt = 1; attempt <= 7; attempt++) {
    const decided = await decide(policy, failure(attempt))
    if (decided.decision === 'retry') waits.push(decided.delayMs)
  }
  const last = await decide(policy, failure(8))

  expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000, 1_000])
  expect(last).toEqual({ decision: 'deadLetter' })
})

test('a share of each wait is random', async () => {
  const policy = policyOf({ backoff: { baseMs: 1_000, jitter: 0.5 } })

  for (let i = 0; i < 50; i++) {
    const decided = await decide(policy, failure(1))

    expect(decided).toMatchObject({ decision: 'retry' })
    const { delayMs } = decided as { delayMs: number }
    expect(delayMs).toBeGreaterThanOrEqual(500)
    expect(delayMs).toBeLessThanOrEqual(1_000)
  }
})

test('a type may have its own options, and other types keep the common ones', async () => {
  const policy = policyOf({
    retries: 1,
    byType: { OrderShipped: { retries: 0, onFailure: 'stop' }, OrderPaid: { onFailure: 'skip' } },
  })

  expect(await course(policy, 'OrderShipped')).toEqual(['stop'])
  expect(await course(policy, 'OrderPaid')).toEqual(['retry', 'skip'])
  expect(await course(policy, 'OrderPlaced')).toEqual(['retry', 'deadLetter'])
  expect(await course(policy, 'toString')).toEqual(['retry', 'deadLetter'])
})

test('a custom policy decides after each failure, with the error and the number of attempts', async () => {
  const seen: unknown[] = []
  const policy = policyOf({
    onFailure: async ({ consumer, event, error, attempt }) => {
      seen.push([consumer, event.type, (error as Error).message, attempt])
      return attempt < 3 ? 'retry' : 'deadLetter'
    },
  })

  const decisions = await course(policy)

  expect(decisions).toEqual(['retry', 'retry', 'deadLetter'])
  expect(seen).toEqual([1, 2, 3].map(attempt => ['mailer', 'OrderPlaced', 'declined', attempt]))
})

test('a custom policy may return any of the four decisions at once, and its waits grow as well', async () => {
  for (const answer of ['stop', 'skip', 'deadLetter'] as const)
    expect(await decide(policyOf({ onFailure: () => answer }), failure(1))).toEqual({ decision: answer })
  const again = policyOf({ onFailure: () => 'retry', backoff: { baseMs: 10, jitter: 0 } })

  expect(await decide(again, failure(1))).toEqual({ decision: 'retry', delayMs: 10 })
  expect(await decide(again, failure(3))).toEqual({ decision: 'retry', delayMs: 40 })
})

test('an answer that is not a decision is refused, and an error of the function is passed on', async () => {
  const strange = policyOf({ onFailure: () => 'ignore' as 'skip' })
  const broken = policyOf({
    onFailure: () => {
      throw new Error('no idea')
    },
  })

  await expect(decide(strange, failure(1))).rejects.toMatchObject({ code: 'invalid_option', option: 'onFailure' })
  await expect(decide(broken, failure(1))).rejects.toThrow('no idea')
})

test('AB-08: an invalid policy is refused when it is made', () => {
  const refused: [string, FailureOptions][] = [
    ['onFailure', { onFailure: 'explode' as 'stop' }],
    ['onFailure', { onFailure: 'dead-letter' as 'stop' }],
    ['onFailure', { onFailure: 'halt' as 'stop' }],
    ['onFailure', { onFailure: 7 as never }],
    ['isRetryable', { isRetryable: true as never }],
    ['retries', { retries: -1 }],
    ['retries', { retries: 1.5 }],
    ['retries', { retries: Number.POSITIVE_INFINITY }],
    ['backoff', { backoff: { baseMs: -1 } }],
    ['backoff', { backoff: { maxMs: Number.NaN } }],
    ['backoff', { backoff: { jitter: 2 } }],
    ['retries', { byType: { OrderPaid: { retries: -1 } } }],
    ['onFailure', { byType: { OrderPaid: { onFailure: 'explode' as 'skip' } } }],
    ['retrys', { byType: { OrderPaid: { retrys: 1 } as never } }],
  ]

  for (const [option, options] of refused)
    expect(() => policyOf(options)).toThrow(expect.objectContaining({ code: 'invalid_option', option }))
})
