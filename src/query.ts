/**
 * `rillflow/query`: all conditions, groups and kinds of queries. The common conditions are in `rillflow`, too.
 *
 *     import { elemMatch, like, sum } from 'rillflow/query'
 */
export { type BoundQuery, type CompiledQuery, compileQuery } from './documents/query/compile.ts'
export {
  and,
  between,
  type Condition,
  contains,
  elemMatch,
  eq,
  exists,
  gt,
  gte,
  isIn,
  isNull,
  like,
  lt,
  lte,
  ne,
  not,
  or,
  regex,
  search,
  startsWith,
} from './documents/query/condition.ts'
export { at, type Field, headline, lower, type Path, rank, type UntypedField } from './documents/query/field.ts'
export { type FilterOptions, filterFrom } from './documents/query/filter.ts'
export { avg, count, type GroupQuery, max, min, sum } from './documents/query/group.ts'
export type { Query, Rows } from './documents/query/query.ts'
