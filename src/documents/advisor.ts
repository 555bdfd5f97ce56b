/**
 * The index advisor: names the indexes that would have served the queries that were run.
 *
 * A query is remembered by its shape: the fields it compares, how it compares them, and its order, but not the operands. So
 * there are as many entries as there are queries in the code; with filters from requests, new shapes replace the oldest.
 * Advice is given where no index begins with a field that the query compares. The index on the body serves equality alone.
 * Whether an index is worth its cost to writers is a decision for people, so the advice has the times.
 */
import type { OpenCollection } from './collection.ts'
import { indexesIn, stepsOf } from './indexes.ts'
import type { Condition } from './query/condition.ts'
import { placeKey } from './query/expression.ts'
import { documentScope, type Place } from './query/field.ts'
import { filled, type Kind, kindOf } from './query/operand.ts'
import type { QueryRun, QueryState } from './query/state.ts'

export interface IndexAdvice {
  /** As it would be declared: `{ paths: ['address.city', { path: 'age', as: 'number' }] }`. */
  readonly index: string
  /** How often queries were run that it would have served. */
  readonly runs: number
  readonly totalMs: number
  readonly averageMs: number
  /** The most rows that one of them returned. */
  readonly maxRows: number
}

export interface Advisor {
  noteRun(run: QueryRun): void
  advise(): IndexAdvice[]
}

/** A field of a query, and the use it makes of it. */
interface Use {
  readonly place: Place
  readonly kind: Kind
  readonly by: 'equality' | 'range' | 'order'
}

interface Shape {
  readonly uses: readonly Use[]
  runs: number
  totalMs: number
  maxRows: number
}

const maxShapes = 200
const maxTexts = 1000

export function openAdvisor({ options }: Pick<OpenCollection, 'options'>): Advisor {
  const shapes = new Map<string, Shape>()
  const known = new Map<string, Shape>()
  const leading = new Set(
    indexesIn(options)
      .filter(each => each.method === 'btree')
      .map(({ parts: [first] }) =>
        placeKey({ path: stepsOf(first!.path), isLower: first!.lower }, first!.as ?? 'text'),
      ),
  )
  const isServed = (uses: readonly Use[]): boolean => {
    const pinned = uses.filter(use => use.by !== 'order')
    if (options.gin !== false && pinned.some(use => use.by === 'equality' && use.place.isLower !== true)) return true
    return (pinned.length > 0 ? pinned : uses.slice(0, 1)).some(use => leading.has(placeKey(use.place, use.kind)))
  }

  const shapeOf = (state: QueryState): Shape | undefined => {
    const uses = usesOf(state)
    if (uses.length === 0) return undefined
    const key = uses.map(use => `${use.by} ${placeKey(use.place, use.kind)}`).join('\n')
    const shape = shapes.get(key) ?? { uses, runs: 0, totalMs: 0, maxRows: 0 }
    shapes.delete(key)
    shapes.set(key, shape)
    if (shapes.size > maxShapes) shapes.delete(shapes.keys().next().value!)
    return shape
  }

  return {
    noteRun({ state, text, rows, tookMs }) {
      // Statements of one text are of one shape. Once shapes are dropped, the order of use matters, so the shape is looked up.
      let shape = shapes.size < maxShapes ? known.get(text) : undefined
      if (shape === undefined) {
        shape = shapeOf(state)
        if (shape === undefined) return
        if (known.size >= maxTexts) known.clear()
        known.set(text, shape)
      }
      shape.runs++
      shape.totalMs += tookMs
      shape.maxRows = Math.max(shape.maxRows, rows)
    },
    advise() {
      const advice = new Map<string, Shape>()
      for (const shape of shapes.values()) {
        if (isServed(shape.uses)) continue
        const index = declaration(shape.uses)
        const known = advice.get(index) ?? { uses: [], runs: 0, totalMs: 0, maxRows: 0 }
        known.runs += shape.runs
        known.totalMs += shape.totalMs
        known.maxRows = Math.max(known.maxRows, shape.maxRows)
        advice.set(index, known)
      }
      return [...advice]
        .map(([index, { runs, totalMs, maxRows }]) => ({ index, runs, totalMs, averageMs: totalMs / runs, maxRows }))
        .sort((a, b) => b.totalMs - a.totalMs)
    },
  }
}

/** The fields that all documents of a result have in common: only conditions that must all be met count. */
function usesOf({ conditions, order }: QueryState): Use[] {
  const found = new Map<string, Use>()
  const add = (use: Use): void => {
    if (use.place.scope !== documentScope || use.place.meta !== undefined || use.place.path.length === 0) return
    const key = placeKey(use.place, use.kind)
    if (!found.has(key) || use.by === 'equality') found.set(key, use)
  }
  const visit = ({ test }: Condition): void => {
    if (test.op === 'all') for (const each of test.of) visit(each)
    else if (test.op === 'startsWith') add({ place: test.place, kind: 'text', by: 'range' })
    else if (test.op === 'compare' || test.op === 'in') {
      const operand = filled(test.op === 'in' ? test.operands : test.operand)
      const kind = kindOf(test.op === 'in' ? ((operand as unknown[])[0] ?? null) : operand)
      if (kind === 'null' || kind === 'json') return
      add({ place: test.place, kind, by: test.op === 'compare' && test.by !== '=' ? 'range' : 'equality' })
    }
  }
  for (const each of conditions) visit(each)
  // A field of unknown kind has a key for each: an index on text is the usual one.
  for (const [at, { place, as }] of order.entries()) {
    if (place.found !== undefined || order[at - 1]?.place === place) continue
    add({ place, kind: order[at + 1]?.place === place ? 'text' : as, by: 'order' })
  }
  const rank = { equality: 0, range: 1, order: 2 }
  return [...found.values()].sort((a, b) => rank[a.by] - rank[b.by])
}

/** The fields that are equal to a value, then the first one that is not. */
function declaration(uses: readonly Use[]): string {
  const pinned = uses.filter(use => use.by === 'equality')
  const fields = [...pinned, ...uses.filter(use => use.by !== 'equality').slice(0, 1)].slice(0, 4)
  const texts = fields.map(({ place, kind }) => {
    const path = JSON.stringify(place.path.join('.')).replaceAll('"', "'")
    const extra = [...(kind === 'text' ? [] : [`as: '${kind}'`]), ...(place.isLower === true ? ['lower: true'] : [])]
    return extra.length === 0 ? path : `{ path: ${path}, ${extra.join(', ')} }`
  })
  return texts.length === 1 ? texts[0]! : `{ paths: [${texts.join(', ')}] }`
}
