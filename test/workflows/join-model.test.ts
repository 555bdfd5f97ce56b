/**
 * Random nested batches against their expected result: each join once, with the results of its branches. A failure names its
 * seed.
 */

import { expect, test } from 'vitest'
import { defineEvents } from '../../src/events/definition.ts'
import type { HandlerResult } from '../../src/workflows/emit.ts'
import { batch, emit } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import type { Workflows } from '../../src/workflows/workflows.ts'
import { pick, type Random, seeded } from '../chaos/seeded-random.ts'
import { expectNothingOpen, openOrderChecks, settled } from './order-checks.ts'

/** The end of one branch. */
type Tree =
  | { readonly kind: 'event' }
  | { readonly kind: 'nothing' }
  | { readonly kind: 'failure' }
  | { readonly kind: 'step'; readonly next: Tree }
  | { readonly kind: 'batch'; readonly branches: readonly Tree[] }

interface TreeMap {
  readonly OrderPlaced: { readonly tree: Tree }
  readonly CheckAsked: { readonly path: string; readonly tree: Tree }
  readonly OrderChecked: { readonly path: string }
}

const treeEvents = defineEvents<TreeMap>()

type Ending = 'arrived' | 'empty' | 'failed'

function grow(random: Random, depth: number): Tree {
  const batches = depth > 0 ? (['batch', 'batch'] as const) : []
  const kinds = ['event', 'event', 'nothing', 'failure', 'step', ...batches] as const
  const kind = pick(random, kinds)
  if (kind === 'step') return { kind, next: grow(random, depth) }
  if (kind === 'batch') return growBatch(random, depth)
  return { kind }
}

function growBatch(random: Random, depth: number): Tree {
  const size = Math.floor(random() * 4)
  return { kind: 'batch', branches: Array.from({ length: size }, () => grow(random, depth - 1)) }
}

/** One line for each join that has to run, in any order; and how the branch ends. */
function expectedOf(tree: Tree, path: string, lines: string[]): { ending: Ending; hasFailed: boolean } {
  if (tree.kind === 'event') return { ending: 'arrived', hasFailed: false }
  if (tree.kind === 'nothing') return { ending: 'empty', hasFailed: false }
  if (tree.kind === 'failure') return { ending: 'failed', hasFailed: true }
  if (tree.kind === 'step') return expectedOf(tree.next, path, lines)
  const ends = tree.branches.map((branch, at) => expectedOf(branch, `${path}.${at}`, lines))
  const indexes = (wanted: Ending): number[] => ends.flatMap(({ ending }, at) => (ending === wanted ? [at] : []))
  const arrived = indexes('arrived')
  lines.push(
    lineOf(
      ends.length,
      arrived.map(at => `${path}.${at}`),
      indexes('failed'),
      indexes('empty'),
    ),
  )
  const hasFailed = ends.some(end => end.hasFailed)
  const end = endOf(arrived.length)
  if (end === 'emits') return { ending: 'arrived', hasFailed }
  if (end === 'throws') return { ending: 'failed', hasFailed: true }
  return { ending: hasFailed ? 'failed' : 'empty', hasFailed }
}

/** The end of the join, so that every end occurs: it depends only on the number of arrivals. */
function endOf(arrived: number): 'emits' | 'throws' | 'nothing' {
  return arrived === 0 ? 'nothing' : arrived === 3 ? 'throws' : 'emits'
}

function lineOf(size: number, paths: readonly string[], failed: readonly number[], empty: readonly number[]): string {
  return `${paths.join(' ')} of ${size}, failed ${failed}, empty ${empty}`
}

function register(flows: Workflows<TreeMap>, lines: Map<string, string[]>): void {
  const fanOut = (path: string, branches: readonly Tree[]): HandlerResult<never> =>
    batch(
      branches.map((tree, at) => emit('CheckAsked', { path: `${path}.${at}`, tree })),
      { join: 'clear' },
    ) as never
  flows.register(
    defineHandler('place', {
      events: treeEvents,
      on: 'OrderPlaced',
      run: ({ data: { tree } }) => (tree.kind === 'batch' ? fanOut('order', tree.branches) : undefined),
    }),
  )
  flows.register(
    defineHandler('check', {
      events: treeEvents,
      on: 'CheckAsked',
      retries: 0,
      run: ({ data: { path, tree } }, { emit }) => {
        if (tree.kind === 'failure') throw new Error(`${path} fails`)
        if (tree.kind === 'step') return emit('CheckAsked', { path, tree: tree.next })
        if (tree.kind === 'batch') return fanOut(path, tree.branches)
        return tree.kind === 'event' ? emit('OrderChecked', { path }) : undefined
      },
    }),
  )
  flows.register(defineHandler('audit', { on: 'OrderChecked', inline: true, run: () => {} }))
  const clear = defineJoin('clear', {
    events: treeEvents,
    on: 'OrderChecked',
    policy: 'allSettled',
    retries: 0,
    run: (events, { correlationId, join, emit }) => {
      const paths = events.map(event => event.data.path)
      const own = lines.get(correlationId) ?? []
      own.push(lineOf(join.size, paths, join.failed, join.empty))
      lines.set(correlationId, own)
      const end = endOf(events.length)
      if (end === 'throws') throw new Error('three are a crowd')
      return end === 'emits' ? emit('OrderChecked', { path: paths[0]!.split('.').slice(0, -1).join('.') }) : undefined
    },
  })
  flows.register(clear)
}

test('SB-17: nested batches end as their branches end, each join once', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31)
  const random = seeded(seed)
  const checks = await openOrderChecks()
  const flows = checks.flows as unknown as Workflows<TreeMap>
  const lines = new Map<string, string[]>()
  register(flows, lines)
  await using worker = flows.worker()
  await worker.start()

  const orders = Array.from({ length: 12 }, (_, at) => ({ id: `order-${at}`, tree: growBatch(random, 3) }))
  await Promise.all(orders.map(({ id, tree }) => flows.publish('OrderPlaced', { tree }, { correlationId: id })))
  for (const { id } of orders) await settled(checks.flows.get(id))

  for (const { id, tree } of orders) {
    const expected: string[] = []
    expectedOf(tree, 'order', expected)
    expect([...(lines.get(id) ?? [])].sort(), `seed ${seed}, ${id}`).toEqual(expected.sort())
  }
  await expectNothingOpen(checks)
})
