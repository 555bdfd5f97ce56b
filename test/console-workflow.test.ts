import { expect, test } from 'vitest'
import type { EventAt, HandlerAt } from '../console/pages/workflow/boxes.ts'
import { layOut } from '../console/pages/workflow/graph.ts'
import { type Line, workflowAt } from '../console/pages/workflow/replay.ts'
import { scaleOf, tracksOf } from '../console/pages/workflow/timeline.ts'

test('six checks or more are one box with a slot for each, and fewer are boxes of their own', () => {
  const boxesOf = (count: number): string[] =>
    layOut([order(count)], new Set(['all-checked']), new Set()).boxes.map(
      ({ box }) => `${box.name} ${box.executions.length}`,
    )

  expect(boxesOf(12)).toContain('check 12')
  expect(boxesOf(3).filter(name => name === 'check 1')).toHaveLength(3)
})

test('every item that was checked leads to the join, wherever the tree has it', () => {
  const { edges, boxes } = layOut([order(3)], new Set(['all-checked']), new Set())
  const join = boxes.find(({ box }) => box.isJoin)!

  expect(edges.filter(({ key }) => key.endsWith(`>${join.box.key}`))).toHaveLength(3)
  expect(edges.map(({ label }) => label)).toContain('ItemChecked ×3')
})

test('a replay shows the states as they were after each line', () => {
  const lines = [line('charge', 'dispatched', 0), line('charge', 'started', 10), line('charge', 'completed', 30)]

  expect([0, 1, 2, 3].map(count => workflowAt(lines, count).stateOf('charge'))).toEqual([
    ...[undefined, 'ready', 'running', 'completed'],
  ])
})

test('the timeline keeps queued apart from running, and folds a long wait', () => {
  const lines = [
    ...[line('check', 'dispatched', 0), line('check', 'started', 20), line('check', 'suspended', 50)],
    ...[line('check', 'started', 600_000), line('check', 'completed', 600_040)],
  ]
  const [track] = tracksOf(lines, 600_040)
  const scale = scaleOf([track!], true)

  expect(track!.spans.map(({ kind, from, to }) => `${kind} ${from}–${to}`)).toEqual([
    ...['queued 0–20', 'run 20–50', 'wait 50–600000', 'done 600000–600040'],
  ])
  expect(scale.cuts.map(({ ms }) => ms)).toEqual([599_950])
  expect(scale.at(600_000) - scale.at(50)).toBeLessThan(0.2)
})

let position = 0

function event(type: string, handlers: HandlerAt[] = []): EventAt {
  position++
  const at = '2026-11-18T10:00:00Z'
  return {
    ...{ kind: 'event', id: `event-${position}`, type, position, at, batch: undefined, data: undefined },
    ...{ handlers, events: [] },
  }
}

function handler(name: string, events: EventAt[] = []): HandlerAt {
  position++
  return {
    ...{ kind: 'handler', executionId: `execution-${position}`, handler: name, version: 1, state: 'completed' },
    ...{
      isDead: false,
      attempts: 1,
      queuedMs: 1,
      runningMs: 1,
      steps: [],
      result: undefined,
      error: undefined,
      events,
    },
  }
}

/** An order whose items are checked; the join hangs under the last one. */
function order(items: number): EventAt {
  const asked = Array.from({ length: items }, (_, at) =>
    event('ItemAsked', [handler('check', [event('ItemChecked', at === items - 1 ? [handler('all-checked')] : [])])]),
  )
  return event('OrderPlaced', [handler('charge', asked)])
}

function line(executionId: string, kind: Line['kind'], at: number): Line {
  position++
  return {
    ...{ position, kind, executionId, handler: executionId, at: new Date(at).toISOString() },
    attempt: 1,
  } as Line
}
