/** When schedules are due. Nothing here needs a database. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { InvalidOption } from '../../src/core/errors.ts'
import { checkTimes, chooseDue, dueTimes, type Missed, maxCaughtUp } from '../../src/workflows/schedules/times.ts'

const berlin = (cron: string): ReturnType<typeof dueTimes> =>
  dueTimes(checkTimes('It', { cron, timeZone: 'Europe/Berlin' }))

function following({ next }: ReturnType<typeof dueTimes>, from: string, count: number): string[] {
  const found: string[] = []
  for (let at = next(new Date(from)); at !== undefined && found.length < count; at = next(at))
    found.push(at.toISOString().replace(':00.000Z', 'Z'))
  return found
}

describe('the clocks leap from 02:00 to 03:00', () => {
  const eve = '2027-03-27T12:00:00Z'

  test('a time of day that is skipped comes once, after the leap', () => {
    expect(following(berlin('30 2 * * *'), eve, 3)).toEqual([
      '2027-03-28T01:00Z',
      '2027-03-29T00:30Z',
      '2027-03-30T00:30Z',
    ])
    expect(following(berlin('0 30 2 * * *'), eve, 1)).toEqual(['2027-03-28T01:00Z'])
  })

  test('a later time of day keeps its place on the clock', () => {
    expect(following(berlin('0 3 * * *'), '2027-03-26T12:00:00Z', 3)).toEqual([
      '2027-03-27T02:00Z',
      '2027-03-28T01:00Z',
      '2027-03-29T01:00Z',
    ])
  })

  test('a schedule every so many minutes continues in the existing minutes', () => {
    expect(following(berlin('*/30 * * * *'), '2027-03-28T00:15:00Z', 3)).toEqual([
      '2027-03-28T00:30Z',
      '2027-03-28T01:00Z',
      '2027-03-28T01:30Z',
    ])
    expect(following(berlin('30 2,5 * * *'), eve, 2)).toEqual(['2027-03-28T03:30Z', '2027-03-29T00:30Z'])
  })
})

describe('the clocks go back from 03:00 to 02:00', () => {
  const eve = '2026-10-24T12:00:00Z'

  test('a time of day that is shown twice comes once, the first time', () => {
    expect(following(berlin('30 2 * * *'), eve, 2)).toEqual(['2026-10-25T00:30Z', '2026-10-26T01:30Z'])
    expect(following(berlin('30 2 * * *'), '2026-10-25T00:59:59.999Z', 1)).toEqual(['2026-10-26T01:30Z'])
  })

  test('a schedule every so many minutes comes in both hours', () => {
    expect(following(berlin('0 * * * *'), '2026-10-24T23:30:00Z', 3)).toEqual([
      '2026-10-25T00:00Z',
      '2026-10-25T01:00Z',
      '2026-10-25T02:00Z',
    ])
    expect(following(berlin('30 2,3 * * *'), eve, 3)).toEqual([
      '2026-10-25T00:30Z',
      '2026-10-25T01:30Z',
      '2026-10-25T02:30Z',
    ])
  })
})

test.each(['30 2 * * *', '*/20 1-3 * * *', '0 3 * * *', '15 30 2 * * *'])(
  'the latest due time of %s is the last one found going forward, also where the clocks change',
  cron => {
    const times = berlin(cron)
    for (const [from, to] of [
      ['2027-03-27T12:00:00Z', '2027-03-28T12:00:00Z'],
      ['2026-10-24T12:00:00Z', '2026-10-25T12:00:00Z'],
    ] as const) {
      let due = times.next(new Date(from))!
      for (let now = due.getTime() + 1; now < new Date(to).getTime(); now += 17 * 60_000 + 1) {
        for (let next = times.next(due)!; next.getTime() <= now; next = times.next(due)!) due = next

        expect(times.latest(times.next(new Date(from))!, new Date(now))).toEqual(due)
      }
    }
  },
)

test('five fields have minutes, six have seconds first; days have names, and there is a last one', () => {
  expect(following(berlin('0 3 * * mon-fri'), '2026-11-20T12:00:00Z', 1)).toEqual(['2026-11-23T02:00Z'])
  expect(following(berlin('0 3 L * *'), '2027-02-01T00:00:00Z', 1)).toEqual(['2027-02-28T02:00Z'])
  expect(following(berlin('*/20 * * * * *'), '2026-11-20T12:00:19.500Z', 2)).toEqual([
    '2026-11-20T12:00:20.000Z',
    '2026-11-20T12:00:40.000Z',
  ])
  expect(following(dueTimes(checkTimes('It', { cron: '0 3 * * *' })), '2026-11-20T12:00:00Z', 1)).toEqual([
    '2026-11-21T03:00Z',
  ])
})

test('the time zone of the process is ignored', async () => {
  const program = `
    const times = await import('./src/workflows/schedules/times.ts')
    const due = times.dueTimes(times.checkTimes('It', { cron: '30 2 * * *', timeZone: 'Europe/Berlin' }))
    console.log(JSON.stringify(due.next(new Date('2026-10-25T00:59:00Z'))))`
  const args = ['--import', 'tsx', '--input-type=module', '-e', program]

  const { stdout } = await promisify(execFile)(process.execPath, args, {
    env: { ...process.env, TZ: 'America/New_York' },
  })

  expect(JSON.parse(stdout)).toBe('2026-10-26T01:30:00.000Z')
})

test.each([
  [{ cron: '' }, 'cron'],
  [{ cron: '* * * *' }, 'cron'],
  [{ cron: '61 * * * *' }, 'cron'],
  [{ cron: '* * * * * * *' }, 'cron'],
  [{ cron: '? * * * *' }, 'cron'],
  [{ cron: '2027-01-01T00:00:00' }, 'cron'],
  [{ cron: '0 0 31 2 *' }, 'cron'],
  [{ cron: 7 as never }, 'cron'],
  [{ cron: '0 3 * * *', timeZone: 'Mars/Olympus' }, 'timeZone'],
  [{ everyMs: 1000, timeZone: 'UTC' }, 'timeZone'],
  [{ everyMs: 9 }, 'everyMs'],
  [{ everyMs: 10.5 }, 'everyMs'],
  [{ at: new Date('never') }, 'at'],
  [{ at: '2027-01-01' as never }, 'at'],
  [{}, 'cron, everyMs, at'],
  [{ everyMs: 1000, at: new Date() }, 'cron, everyMs, at'],
])('%j is refused', (given, option) => {
  expect(() => checkTimes('It', given)).toThrow(InvalidOption)
  expect(() => checkTimes('It', given)).toThrow(expect.objectContaining({ option }))
})

describe('missed due times', () => {
  const everyHour = dueTimes({ everyMs: 3_600_000 })
  const at = (time: string): Date => new Date(`2027-01-01T${time}Z`)
  const choose = (missed: Missed, now: Date): ReturnType<typeof chooseDue> =>
    chooseDue(everyHour, missed, at('03:00:00'), now)

  test('do not include one that has just come', async () => {
    for (const missed of ['once', 'all', 'skip'] as const)
      expect(await choose(missed, at('03:00:59'))).toEqual({ dueAt: at('03:00:00'), isSkipped: false })
  })

  test('are run once for the latest, once for each from the oldest on, or not at all', async () => {
    expect(await choose('once', at('07:30:00'))).toEqual({ dueAt: at('07:00:00'), isSkipped: false })
    expect(await choose('all', at('07:30:00'))).toEqual({ dueAt: at('03:00:00'), isSkipped: false })
    expect(await choose('skip', at('07:30:00'))).toEqual({ dueAt: at('07:00:00'), isSkipped: true })
    expect(await choose('skip', at('07:00:30'))).toEqual({ dueAt: at('07:00:00'), isSkipped: false })
  })

  test('are made up for at most a thousand times, and then for the newest', async () => {
    const now = new Date('2028-01-01T00:30:00Z')
    const isIn = (time: Date): number => (now.getTime() - time.getTime()) / 3_600_000
    const everyMinute = berlin('* * * * *')

    const interval = await choose('all', now)
    const cron = await chooseDue(everyMinute, 'all', at('03:00:00'), at('23:00:30'))
    const few = await chooseDue(everyMinute, 'all', at('03:00:00'), at('06:00:30'))

    expect(Math.floor(isIn(interval.dueAt))).toBe(maxCaughtUp - 1)
    expect(cron.dueAt).toEqual(at('06:21:00'))
    expect(few.dueAt).toEqual(at('03:00:00'))
  })
})
