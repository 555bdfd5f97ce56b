/** The judge of transactions is judged itself: it accepts histories that are right, and names what is planted. */
import { describe, expect, test } from 'vitest'
import { checkTransactions } from '../../src/verify/check-transactions.ts'
import type { Operation, RecordedTransaction, TransactionHistory } from '../../src/verify/transaction-history.ts'

type Step =
  | ['read', object: string, version: number, element?: string]
  | ['checked', object: string, version: number]
  | ['write', object: string, element: string]

function transaction(
  name: string,
  [began, ended]: [number, number],
  outcome: RecordedTransaction['outcome'],
  ...steps: Step[]
): RecordedTransaction {
  const operations = steps.map(([kind, object, which, element]): Operation => {
    if (kind === 'write') return { kind, object, element: which }
    return {
      kind: 'read',
      object,
      version: which,
      element,
      isChecked: kind === 'checked',
      began: began * 1e6,
      ended: ended * 1e6,
    }
  })
  return { name, began: began * 1e6, ended: ended * 1e6, outcome, operations }
}

function history(
  objects: Record<string, string[]>,
  transactions: RecordedTransaction[],
  isolation: TransactionHistory['isolation'] = 'read committed',
): TransactionHistory {
  return { transactions, objects: new Map(Object.entries(objects)), isolation }
}

const first = transaction('place', [0, 1], 'committed', ['write', 'order-1', 'a'], ['write', 'stock/pen', 's1'])

test('a history that is right has no problem', () => {
  const right = history({ 'order-1': ['a', 'b', 'c'], 'stock/pen': ['s1', 's2'] }, [
    first,
    transaction(
      'pay',
      [2, 5],
      'committed',
      ['checked', 'order-1', 1],
      ['write', 'order-1', 'b'],
      ['write', 'stock/pen', 's2'],
    ),
    transaction('refused', [2, 6], 'rolled back', ['checked', 'order-1', 1], ['write', 'order-1', 'x']),
    transaction('cut off', [6, 7], 'unknown', ['write', 'order-1', 'c']),
    transaction('cut off, too', [6, 7], 'unknown', ['write', 'order-1', 'd'], ['write', 'stock/pen', 's9']),
    transaction('look', [3, 8], 'committed', ['read', 'order-1', 1, 'a'], ['read', 'stock/pen', 2, 's2']),
  ])

  expect(checkTransactions(right)).toEqual([])
})

test('two reads of one transaction may differ in read committed, and not in serializable', () => {
  const look = transaction('look', [3, 8], 'committed', ['read', 'order-1', 1, 'a'], ['read', 'stock/pen', 2, 's2'])
  const pay = transaction('pay', [4, 5], 'committed', ['write', 'order-1', 'b'], ['write', 'stock/pen', 's2'])
  const objects = { 'order-1': ['a', 'b'], 'stock/pen': ['s1', 's2'] }

  expect(checkTransactions(history(objects, [first, look, pay]))).toEqual([])
  expect(checkTransactions(history(objects, [first, look, pay], 'serializable'))).toEqual([
    'a read that fits no order\n' +
      '  look read version 1 of order-1, and pay wrote the next one\n' +
      '  pay wrote version 2 of stock/pen, and look read it',
  ])
})

const planted: Record<string, [TransactionHistory, string]> = {
  'a lost update': [
    history({ 'order-1': ['a', 'b', 'c'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'committed', ['checked', 'order-1', 1], ['write', 'order-1', 'b']),
      transaction('ship', [3, 6], 'committed', ['checked', 'order-1', 1], ['write', 'order-1', 'c']),
    ]),
    'a lost update\n  pay wrote version 2 of order-1, and ship the next one\n  ship read version 1 of order-1, and pay wrote the next one',
  ],
  'a write skew': [
    history(
      { 'order-1': ['a', 'b'], 'stock/pen': ['s1', 's2'] },
      [
        first,
        transaction('pay', [2, 5], 'committed', ['read', 'stock/pen', 1, 's1'], ['write', 'order-1', 'b']),
        transaction('take', [3, 6], 'committed', ['read', 'order-1', 1, 'a'], ['write', 'stock/pen', 's2']),
      ],
      'serializable',
    ),
    'a write skew\n  pay read version 1 of stock/pen, and take wrote the next one\n  take read version 1 of order-1, and pay wrote the next one',
  ],
  'a torn transaction over two streams': [
    history({ 'order-1': ['a', 'b'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'unknown', ['write', 'order-1', 'b'], ['write', 'stock/pen', 's2']),
    ]),
    'pay is torn: its write to stock/pen is lost, others are stored',
  ],
  'a torn transaction, by what others have read of it': [
    history({ 'order-1': ['a', 'b'], 'stock/pen': ['s1', 's2'] }, [
      first,
      transaction('pay', [2, 5], 'committed', ['write', 'order-1', 'b'], ['write', 'stock/pen', 's2']),
      transaction('see the order', [3, 4], 'committed', ['read', 'order-1', 2, 'b']),
      transaction('see the stock', [5, 6], 'committed', ['read', 'stock/pen', 1, 's1']),
    ]),
    'a read that fits no order\n',
  ],
  'a stale read': [
    history({ 'order-1': ['a', 'b'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'committed', ['write', 'order-1', 'b']),
      transaction('look', [6, 7], 'committed', ['read', 'order-1', 1, 'a']),
    ]),
    'a stale read\n  pay had ended (5.00 ms) before a read of look began (6.00 ms)\n  a read of look read version 1 of order-1, and pay wrote the next one',
  ],
  'a read of what was rolled back': [
    history({ 'order-1': ['a'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'rolled back', ['write', 'order-1', 'b']),
      transaction('look', [3, 4], 'committed', ['read', 'order-1', 2, 'b']),
    ]),
    'look read version 2 of order-1 (b), which was never committed',
  ],
  'a read in the middle of a transaction': [
    history({ 'order-1': ['a', 'b', 'c'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'committed', ['write', 'order-1', 'b'], ['write', 'order-1', 'c']),
      transaction('look', [3, 4], 'committed', ['read', 'order-1', 2, 'b']),
    ]),
    'look read version 2 of order-1, in the middle of the writes of pay',
  ],
  'writes that are lost': [
    history({ 'order-1': ['a'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'committed', ['write', 'order-1', 'b']),
    ]),
    'pay was committed, and its writes are lost: order-1',
  ],
  'what was rolled back and is stored': [
    history({ 'order-1': ['a', 'b'], 'stock/pen': ['s1'] }, [
      first,
      transaction('pay', [2, 5], 'rolled back', ['write', 'order-1', 'b']),
    ]),
    'pay was rolled back, and is stored: order-1',
  ],
  'writes of two streams in opposite orders': [
    history({ 'order-1': ['a', 'b', 'c'], 'stock/pen': ['s1', 's3', 's2'] }, [
      first,
      transaction('pay', [2, 5], 'committed', ['write', 'order-1', 'b'], ['write', 'stock/pen', 's2']),
      transaction('ship', [3, 6], 'committed', ['write', 'order-1', 'c'], ['write', 'stock/pen', 's3']),
    ]),
    'a circle of writes\n',
  ],
  'an element that no transaction has written': [
    history({ 'order-1': ['a', 'z'], 'stock/pen': ['s1'] }, [first]),
    'version 2 of order-1 was written by no transaction: z',
  ],
}

describe('it finds', () => {
  for (const [title, [given, problem]] of Object.entries(planted))
    test(title, () => {
      expect(checkTransactions(given).join('\n')).toContain(problem)
    })
})

test('of a long circle and a short one the short one explains it', () => {
  const ring = Array.from({ length: 50 }, (_, at) =>
    transaction(
      `t${at}`,
      [0, 100],
      'committed',
      ['read', `o${at}`, 0],
      ['write', `o${(at + 1) % 50}`, `e${(at + 1) % 50}`],
    ),
  )
  const objects = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`o${at}`, [`e${at}`]]))
  const [t0, t1] = [
    transaction('t0', [0, 100], 'committed', ...stepsOf(ring[0]!), ['read', 'p', 0]),
    transaction('t1', [0, 100], 'committed', ...stepsOf(ring[1]!), ['write', 'p', 'p1']),
  ]

  const [problem] = checkTransactions(history({ ...objects, p: ['p1'] }, [t0!, t1!, ...ring.slice(2)], 'serializable'))

  expect(problem).toBe(
    'a write skew\n  t0 read version 0 of p, and t1 wrote the next one\n  t1 read version 0 of o1, and t0 wrote the next one',
  )
})

function stepsOf({ operations }: RecordedTransaction): Step[] {
  return operations.map(each =>
    each.kind === 'write' ? ['write', each.object, each.element] : ['read', each.object, each.version],
  )
}
