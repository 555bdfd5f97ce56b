/** The judge of appends is judged itself: it accepts histories that are right, and names what is planted in the others. */
import { describe, expect, test } from 'vitest'
import type { Answer, AppendCall, AppendHistory, LoggedEvent } from '../../src/verify/append-history.ts'
import { checkAppends } from '../../src/verify/check-appends.ts'

/** An append of this many events to `order-1`, during these milliseconds. */
function call(name: string, during: [number, number?], answer?: Answer, more: Partial<AppendCall> = {}): AppendCall {
  const parts = [{ stream: 'order-1', expected: 'any' as const, events: 1 }]
  const [began, ended] = during
  return { name, parts, began: began * 1e6, ended: ended === undefined ? undefined : ended * 1e6, answer, ...more }
}

/** An answer: these versions of `order-1`, at the positions of the same numbers. */
function stored(...versions: number[]): Answer {
  const last = versions.at(-1)!
  const result = { stream: 'order-1', version: last, position: last, repeated: false }
  return { kind: 'stored', results: [{ ...result, eventIds: versions.map(version => `e${version}`) }] }
}

/** A log of `order-1`: the call of each version. */
function logOf(...calls: (string | undefined)[]): LoggedEvent[] {
  return calls.map((name, at) => ({
    ...{ id: `e${at + 1}`, stream: 'order-1', version: at + 1, position: at + 1, call: name },
  }))
}

function expecting(expected: AppendCall['parts'][0]['expected'], events = 1): Partial<AppendCall> {
  return { parts: [{ stream: 'order-1', expected, events }] }
}

const conflict = (actual: number): Answer => ({ kind: 'conflict', stream: 'order-1', actual })
const placed = call('place', [0, 10], stored(1), expecting('empty'))

test('a history that is right has no problem', () => {
  const calls = [
    placed,
    call('pay', [11, 20], stored(2, 3), expecting(1, 2)),
    call('ship', [12, 30], conflict(3), expecting(1)),
    call('cancel', [5, 14], conflict(1), expecting('empty')),
    call('lost', [15, 25], { kind: 'unknown' }, expecting('any', 2)),
    call('killed', [16]),
    call('repeat', [40, 41], { kind: 'stored', results: [{ ...resultOf(placed), repeated: true }] }),
  ]
  const read = { name: 'read', stream: 'order-1', began: 13e6, ended: 21e6, eventIds: ['e1', 'e2', 'e3'] }
  const follower = { name: 'a follower', from: 1, cursor: 5, positions: [2, 3, 4, 5] }

  const history = { calls, log: logOf('place', 'pay', 'pay', 'lost', 'lost'), reads: [read], deliveries: [follower] }

  expect(checkAppends(history)).toEqual([])
})

const planted: Record<string, [history: AppendHistory, problem: string]> = {
  'a lost update: two appends have got the same version': [
    { calls: [placed, call('again', [0, 9], stored(1), expecting(0))], log: logOf('place') },
    'an answer names events of another call\n  again (0.00–9.00 ms) appends 1 to order-1 at 0: stored, version 1, position 1',
  ],
  'a lost update: an append is not at the version it expected': [
    { calls: [placed, call('pay', [11, 20], stored(2), expecting(0))], log: logOf('place', 'pay') },
    'an append expected order-1 at 0, and got version 2\n  pay (11.00–20.00 ms) appends 1 to order-1 at 0: stored, version 2, position 2',
  ],
  'an acknowledged append is lost': [
    { calls: [placed, call('pay', [11, 20], stored(2))], log: logOf('place') },
    'an append was acknowledged, and 1 of its events are lost\n  pay (11.00–20.00 ms) appends 1 to order-1 at any: stored, version 2, position 2',
  ],
  'a torn append of which the outcome is unknown': [
    { calls: [placed, call('pay', [11, 20], { kind: 'unknown' }, expecting('any', 2))], log: logOf('place', 'pay') },
    'an append is torn: 1 of 2 events are stored\n  pay (11.00–20.00 ms) appends 2 to order-1 at any: unknown',
  ],
  'a torn append of a process that was killed': [
    { calls: [call('pay', [11], undefined, expecting('any', 3))], log: logOf('pay') },
    'an append is torn: 1 of 3 events are stored\n  pay (0.00–… ms) appends 3 to order-1 at any: no answer',
  ],
  'a torn append with another one in its middle': [
    {
      calls: [placed, call('pay', [0, 20], { kind: 'unknown' }, expecting('any', 2))],
      log: logOf('pay', 'place', 'pay').map(event =>
        event.call === 'place' ? { ...event, id: 'e1' } : { ...event, id: `p${event.version}` },
      ),
    },
    'an append expected order-1 at empty, and got version 2',
  ],
  'an append that was refused is stored': [
    {
      calls: [placed, call('pay', [11, 20], { kind: 'refused', code: 'stream_archived' })],
      log: logOf('place', 'pay'),
    },
    'an append was refused, and is stored\n  pay (11.00–20.00 ms) appends 1 to order-1 at any: refused, stream_archived',
  ],
  'an append is stored twice': [
    { calls: [call('pay', [11, 20], stored(1))], log: logOf('pay', 'pay') },
    'an append is torn: 2 of 1 events are stored',
  ],
  'one key has stored events twice': [
    {
      calls: [call('pay', [0, 9], stored(1), { key: 'k' }), call('pay again', [0, 9], stored(2), { key: 'k' })],
      log: logOf('pay', 'pay again'),
    },
    'key k has stored events twice',
  ],
  'the order of two appends is not that of time': [
    { calls: [call('early', [0, 5], stored(2)), call('late', [6, 9], stored(1))], log: logOf('late', 'early') },
    'the earlier of two appends has the higher position\n  early (0.00–5.00 ms) appends 1 to order-1 at any: stored, version 2, position 2\n  late (6.00–9.00 ms) appends 1 to order-1 at any: stored, version 1, position 1',
  ],
  'a conflict that names a version from before the call': [
    {
      calls: [placed, call('pay', [11, 20], stored(2)), call('ship', [21, 22], conflict(1), expecting(5))],
      log: logOf('place', 'pay'),
    },
    'a call did not see version 2 of order-1, which was there before\n  pay (11.00–20.00 ms) appends 1 to order-1 at any: stored, version 2, position 2\n  ship (21.00–22.00 ms) appends 1 to order-1 at 5: conflict, order-1 has version 1',
  ],
  'a conflict that names a version from after the call': [
    {
      calls: [placed, call('pay', [11, 20], stored(2)), call('ship', [3, 4], conflict(2), expecting(5))],
      log: logOf('place', 'pay'),
    },
    'version 2 of order-1 was seen before it was there',
  ],
  'a conflict although the version was the expected one': [
    { calls: [placed, call('pay', [11, 20], conflict(1), expecting(1))], log: logOf('place') },
    'a conflict names the expected version',
  ],
  'a stale read': [
    {
      calls: [placed, call('pay', [11, 20], stored(2))],
      log: logOf('place', 'pay'),
      reads: [{ name: 'read', stream: 'order-1', began: 25e6, ended: 26e6, eventIds: ['e1'] }],
    },
    'a call did not see version 2 of order-1, which was there before\n  pay (11.00–20.00 ms) appends 1 to order-1 at any: stored, version 2, position 2\n  read (25.00–26.00 ms) reads order-1: 1 events',
  ],
  'reads that go back': [
    {
      calls: [placed, call('pay', [11], undefined)],
      log: logOf('place', 'pay'),
      reads: [
        { name: 'first read', stream: 'order-1', began: 20e6, ended: 21e6, eventIds: ['e1', 'e2'] },
        { name: 'second read', stream: 'order-1', began: 22e6, ended: 23e6, eventIds: ['e1'] },
      ],
    },
    'version 2 of order-1 was seen before it was there\n  first read (20.00–21.00 ms) reads order-1: 2 events\n  second read (22.00–23.00 ms) reads order-1: 1 events',
  ],
  'a read of a part of an append': [
    {
      calls: [call('pay', [11, 20], stored(1, 2), expecting('any', 2))],
      log: logOf('pay', 'pay'),
      reads: [{ name: 'read', stream: 'order-1', began: 15e6, ended: 16e6, eventIds: ['e1'] }],
    },
    'a part of an append was seen: version 1 of order-1',
  ],
  'a gap between the versions': [
    { calls: [placed], log: logOf('place').map(event => ({ ...event, version: 2 })) },
    'order-1 has version 2 where 1 should be',
  ],
  'an event that no call has appended': [
    { calls: [placed], log: logOf('place', undefined) },
    'version 2 of order-1 was appended by no call',
  ],
  'an answer with a wrong position': [
    { calls: [placed], log: logOf('place').map(event => ({ ...event, position: 7 })) },
    'an answer says position 1, and the log says 7',
  ],
  'a reader that misses an event': [
    { calls: [placed], log: logOf('place'), deliveries: [{ name: 'a follower', from: 0, cursor: 1, positions: [] }] },
    'a follower never got position 1',
  ],
  'a reader that gets an event twice': [
    {
      calls: [placed],
      log: logOf('place'),
      deliveries: [{ name: 'a follower', from: 0, cursor: 1, positions: [1, 1] }],
    },
    'a follower got again position 1',
  ],
  'a reader that gets events out of order': [
    {
      calls: [placed, call('pay', [11, 20], stored(2))],
      log: logOf('place', 'pay'),
      deliveries: [{ name: 'a follower', from: 0, cursor: 2, positions: [2, 1] }],
    },
    'a follower got out of order position 1',
  ],
  'a reader that gets what is not in the log': [
    {
      calls: [placed],
      log: logOf('place'),
      deliveries: [{ name: 'a follower', from: 0, cursor: 3, positions: [1, 2, 3] }],
    },
    'a follower got something that is not in the log, or not for it, at position 2, and 1 more',
  ],
}

describe('it finds', () => {
  for (const [title, [history, problem]] of Object.entries(planted))
    test(title, () => {
      const problems = checkAppends(history)

      expect(problems.join('\n')).toContain(problem)
    })
})

test('a hundred thousand appends and conflicts are judged one by one, not in pairs', () => {
  const appends = Array.from({ length: 100_000 }, (_, at) => call(`c${at}`, [at, at + 5], stored(at + 1)))
  const conflicts = appends.map(({ name }, at) => call(`${name}, too`, [at, at + 5], conflict(at + 1), expecting(at)))

  expect(checkAppends({ calls: [...appends, ...conflicts], log: logOf(...appends.map(({ name }) => name)) })).toEqual(
    [],
  )
})

function resultOf({ answer }: AppendCall) {
  if (answer?.kind !== 'stored') throw new Error('not stored')
  return answer.results[0]!
}
