/**
 * Compiled queries: the statement is written once, and run with other parameters each time.
 *
 *     const byCity = compileQuery(customers, (q, city: string) => q.where(c => eq(c.address.city, city)))
 *     await byCity('Paris').toArray()
 *
 * The function that describes the query gets placeholders for its arguments, which may go to operators, `limit` and
 * `offset` and nowhere else. It is called once for each combination of kinds (text, number, list of texts, null …) that
 * the arguments have, because the statement depends on these. The statement stays prepared on its connections, so the
 * server parses it once and uses one plan for it.
 */
import { isRillflowError } from '../../core/errors.ts'
import type { CallOptions } from '../collection.ts'
import { reportDocuments } from '../execute.ts'
import { tooLarge } from '../size.ts'
import { Placeholder, signatureOf } from './operand.ts'
import type { Query, Queryable } from './query.ts'
import { executorFor, runPrepared } from './run.ts'
import { toRow, widthOf, writeCount, writeSelect } from './select.ts'
import type { QuerySource, QueryState, Written } from './state.ts'
import { internalsOf, notOne } from './table-query.ts'

/** Called with its arguments, it returns a query to run. */
export type CompiledQuery<Args extends readonly unknown[], Row> = (...args: Args) => BoundQuery<Row>

/** A compiled query with its arguments. */
export interface BoundQuery<Row> {
  toArray(options?: CallOptions): Promise<Row[]>
  first(options?: CallOptions): Promise<Row | undefined>
  one(options?: CallOptions): Promise<Row>
  optional(options?: CallOptions): Promise<Row | undefined>
  count(options?: CallOptions): Promise<number>
}

/**
 * A query whose text is put together once, for calls with other arguments.
 *
 * @example
 * ```ts
 * const inCity = compileQuery(store.documents(customers), (query, city: string) => query.where(c => eq(c.city, city)))
 * const found = await inCity('Leeds').toArray()
 * ```
 */
export function compileQuery<Doc, Args extends readonly unknown[], Row>(
  collection: Queryable<Doc>,
  describe: (query: Query<Doc>, ...args: Args) => Query<Doc, Row>,
): CompiledQuery<Args, Row> {
  const plans = new Map<string, Plan>()
  return (...args) => {
    const signature = signatureOf(args)
    let plan = plans.get(signature)
    if (plan === undefined) {
      if (plans.size >= maxPlans) plans.clear()
      const placeholders = args.map((sample, i) => new Placeholder(i, sample)) as readonly unknown[] as Args
      const { source, state } = internalsOf(describe(collection.query(), ...placeholders))
      plan = { source, state, written: new Map() }
      plans.set(signature, plan)
    }
    return bind(plan, args)
  }
}

const maxPlans = 100

function isMissing(source: QuerySource, { included }: QueryState): boolean {
  return [source, ...included.map(each => each.source)].some(({ collection }) => collection.state.isMissing)
}

interface Plan {
  readonly source: QuerySource
  readonly state: QueryState
  /** Statements by the limit of rows, that of `count` under 0; and those that also measure the rows. */
  readonly written: Map<number | string, Written>
}

function bind<Row>({ source, state, written }: Plan, args: readonly unknown[]): BoundQuery<Row> {
  const run = async (cap: number, options: CallOptions = {}, maxBytes?: number): Promise<unknown[][]> => {
    const executor = await executorFor(source, state, options)
    const key = maxBytes === undefined ? cap : `${cap} measured`
    let statement = written.get(key)
    if (statement === undefined) {
      statement = cap === 0 ? writeCount(source, state) : writeSelect(source, { ...state, cap }, { maxBytes })
      // While a table is missing, the statement reads an empty relation instead.
      if (!isMissing(source, state)) written.set(key, statement)
    }
    const { values, slots, budgetMs } = statement.parameters
    const given = [...values]
    for (const { position, make } of slots) given[position] = make(args)
    return runPrepared(source, state, { text: statement.text, values: given, budgetMs }, executor)
  }
  const rows = async (cap: number, options?: CallOptions): Promise<Row[]> => {
    const found = await run(cap, options).catch(error => {
      if (!isRillflowError(error, 'result_too_large') || options?.tx !== undefined) throw error
      return run(cap, options, Number.MAX_SAFE_INTEGER)
    })
    reportDocuments(source.collection, 'read', 'documents.query', found.length)
    const width = widthOf(source, state)
    return found.map(row => toRow(source, state, row, tooLarge(row, width)) as Row)
  }
  const optional = async (options?: CallOptions): Promise<Row | undefined> => {
    const [row, other] = await rows(2, options)
    if (other !== undefined) throw notOne(source, 'several')
    return row
  }
  return {
    toArray: options => rows(Number.POSITIVE_INFINITY, options),
    first: async options => (await rows(1, options))[0],
    optional,
    async one(options) {
      const row = await optional(options)
      if (row === undefined) throw notOne(source, 'none')
      return row
    },
    count: async options => Number((await run(0, options))[0]![0]),
  }
}
