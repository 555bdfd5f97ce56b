import { expect, test } from 'vitest'
import { type Breaker, type BreakerOptions, circuitBreaker } from '../../src/consumers/run/breaker.ts'
import { deferred } from '../../src/core/abort.ts'
import { manualClock } from '../core/manual-clock.ts'
import { outcome } from '../support/shop.ts'

function open(options: BreakerOptions) {
  const clock = manualClock(1_000_000)
  const breaker = circuitBreaker('mailer', clock, options)
  return { clock, breaker }
}

const works = (breaker: Breaker) => outcome(breaker.run(async () => 'sent'))
const fails = (breaker: Breaker) =>
  outcome(
    breaker.run(async () => {
      throw new Error('the mail server is down')
    }),
  )

test('a breaker opens after so many failures in a row, and a success restarts the count', async () => {
  const { breaker } = open({ failures: 2 })

  await fails(breaker)
  await works(breaker)
  await fails(breaker)
  const before = breaker.state()
  await fails(breaker)

  expect(before).toBe('closed')
  expect(breaker.state()).toBe('open')
})

test('an open breaker calls nothing, and the error says for how long', async () => {
  const { breaker, clock } = open({ failures: 1, openMs: 100 })
  await fails(breaker)
  await clock.advance(30)
  let called = false

  const { error } = await outcome(
    breaker.run(() => {
      called = true
    }),
  )

  expect(error).toMatchObject({ code: 'circuit_open', consumer: 'mailer', retryInMs: 70, retryable: true })
  expect(called).toBe(false)
  expect(breaker.retryInMs()).toBe(70)
})

test('AB-11: half open, it lets through at most as many calls as trials at once', async () => {
  const { breaker, clock } = open({ failures: 1, openMs: 100, trials: 2 })
  await fails(breaker)
  await clock.advance(100)
  const answer = deferred<string>()

  const trials = [breaker.run(() => answer.promise), breaker.run(() => answer.promise)]
  const third = await works(breaker)

  expect(breaker.state()).toBe('halfOpen')
  expect(third.error).toMatchObject({ code: 'circuit_open', retryInMs: 0 })
  answer.resolve('sent')
  expect(await Promise.all(trials)).toEqual(['sent', 'sent'])
  expect(breaker.state()).toBe('closed')
})

test('AB-11: half open, as many successes as trials close it, also those of asynchronous calls', async () => {
  const { breaker, clock } = open({ failures: 1, openMs: 100, trials: 2 })
  await fails(breaker)
  await clock.advance(100)

  await works(breaker)
  const between = breaker.state()
  await outcome(breaker.run(() => 'sent at once'))

  expect(between).toBe('halfOpen')
  expect(breaker.state()).toBe('closed')
})

test('half open, one failure opens it again for the full time', async () => {
  const { breaker, clock } = open({ failures: 3, openMs: 100, trials: 2 })
  for (let i = 0; i < 3; i++) await fails(breaker)
  await clock.advance(100)
  await works(breaker)

  await fails(breaker)

  expect(breaker.state()).toBe('open')
  expect(breaker.retryInMs()).toBe(100)
})

test('AB-11: calls that were running when it opened neither prolong nor end the open time', async () => {
  const { breaker, clock } = open({ failures: 1, openMs: 100 })
  const [late, later] = [deferred<string>(), deferred<string>()]
  const failing = outcome(breaker.run(() => late.promise))
  const working = outcome(breaker.run(() => later.promise))
  await fails(breaker)
  await clock.advance(60)

  late.reject(new Error('timed out'))
  later.resolve('sent')
  await failing
  await working

  expect(breaker.state()).toBe('open')
  expect(breaker.retryInMs()).toBe(40)
})

test('a call from before it opened is not a trial, whatever its outcome', async () => {
  const { breaker, clock } = open({ failures: 1, openMs: 100 })
  const [late, later] = [deferred<string>(), deferred<string>()]
  const working = breaker.run(() => late.promise)
  const failing = outcome(breaker.run(() => later.promise))
  await fails(breaker)
  await clock.advance(100)

  late.resolve('sent')
  later.reject(new Error('timed out'))
  await working
  await failing

  expect(breaker.state()).toBe('halfOpen')
})

test('a clock that is set back does not keep it open longer', async () => {
  const { breaker, clock } = open({ failures: 1, openMs: 100 })
  await fails(breaker)

  clock.set(0)
  const afterwards = breaker.retryInMs()
  await clock.advance(100)

  expect(afterwards).toBe(100)
  expect(breaker.state()).toBe('halfOpen')
})

test('options that could never open or close it are refused', () => {
  for (const option of ['failures', 'openMs', 'trials'] as const) {
    for (const value of [0, -1, 1.5, Number.NaN])
      expect(() => open({ [option]: value })).toThrow(
        expect.objectContaining({ code: 'invalid_option', option: `breaker.${option}` }),
      )
  }
})
