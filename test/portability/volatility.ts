/**
 * The volatility of functions, operators and casts, read from the catalogue of the embedded engine. Overloads are resolved
 * by types, which are inferred from casts, columns and results as far as possible. If several fit, the most volatile one
 * counts; an operator between two unknown types counts as immutable.
 */
import type { Database } from '../../src/database/database.ts'
import { sql } from '../../src/database/sql.ts'
import { inField, type Node, namesIn } from './syntax-tree.ts'

export type Volatility = 'immutable' | 'stable' | 'volatile'

export interface Catalogue {
  /** Of a call, an operator or a cast; everything else is immutable. */
  volatilityOf(node: Node): Volatility
  /** The columns of a table whose default is computed anew for each statement: by its name without the schema. */
  computedDefaultsOf(table: string): readonly string[]
}

interface Routine {
  readonly name: string
  readonly arguments: readonly string[]
  readonly isOpen: boolean
  readonly result: string
  readonly volatility: string
}

interface Tables {
  readonly functions: Map<string, Routine[]>
  readonly operators: Map<string, Routine[]>
  /** By `from to`. */
  readonly casts: Map<string, string>
  readonly types: Map<string, { out: string; into: string }>
  /** The type of a column, if all tables with a column of that name agree. */
  readonly columns: Map<string, string>
  /** Table and column. */
  readonly defaults: readonly [string, string][]
}

export async function readCatalogue(database: Database, schema: string): Promise<Catalogue> {
  const functions = await database.run<Routine>(sql`/* test.functions */
    select
      p.proname as name,
      to_jsonb(array(
        select t.typname
        from unnest(p.proargtypes::oid[]) with ordinality as a(oid, place)
        join pg_type as t on t.oid = a.oid
        order by a.place)) as arguments,
      p.provariadic <> 0 or p.pronargdefaults > 0 as "isOpen",
      r.typname as result,
      p.provolatile::text as volatility
    from pg_proc as p
    join pg_type as r on r.oid = p.prorettype
    where p.pronamespace in ('pg_catalog'::regnamespace, ${schema}::text::regnamespace)`)
  const operators = await database.run<Routine>(sql`/* test.operators */
    select
      o.oprname as name,
      to_jsonb(array_remove(array[l.typname, r.typname], null)) as arguments,
      false as "isOpen",
      t.typname as result,
      p.provolatile::text as volatility
    from pg_operator as o
    join pg_proc as p on p.oid = o.oprcode
    join pg_type as t on t.oid = o.oprresult
    left join pg_type as l on l.oid = o.oprleft
    left join pg_type as r on r.oid = o.oprright`)
  const casts = await database.runArrays(sql`/* test.casts */
    select s.typname || ' ' || t.typname, coalesce(p.provolatile, 'i')::text
    from pg_cast as c
    join pg_type as s on s.oid = c.castsource
    join pg_type as t on t.oid = c.casttarget
    left join pg_proc as p on p.oid = c.castfunc
    where c.castmethod <> 'i'`)
  const types = await database.runArrays(sql`/* test.types */
    select t.typname, o.provolatile::text, i.provolatile::text
    from pg_type as t
    join pg_proc as o on o.oid = t.typoutput
    join pg_proc as i on i.oid = t.typinput`)
  const columns = await database.runArrays(sql`/* test.columns */
    select a.attname, min(t.typname)
    from pg_attribute as a
    join pg_class as c on c.oid = a.attrelid
    join pg_type as t on t.oid = a.atttypid
    where c.relnamespace = ${schema}::text::regnamespace
      and c.relkind = 'r'
      and a.attnum > 0
    group by a.attname
    having count(distinct a.atttypid) = 1`)
  const defaults = await database.runArrays(sql`/* test.defaults */
    select c.relname, a.attname
    from pg_attrdef as d
    join pg_class as c on c.oid = d.adrelid
    join pg_attribute as a on a.attrelid = c.oid and a.attnum = d.adnum
    where c.relnamespace = ${schema}::text::regnamespace
      and pg_get_expr(d.adbin, d.adrelid) ~ '(now|clock_timestamp)\\('`)
  return catalogueOf({
    defaults: defaults as [string, string][],
    functions: byName(functions),
    operators: byName(operators),
    casts: new Map(casts as [string, string][]),
    types: new Map((types as string[][]).map(([name, out, into]) => [name!, { out: out!, into: into! }])),
    columns: new Map(columns as [string, string][]),
  })
}

function byName(routines: readonly Routine[]): Map<string, Routine[]> {
  const groups = new Map<string, Routine[]>()
  for (const routine of routines) groups.set(routine.name, [...(groups.get(routine.name) ?? []), routine])
  return groups
}

function catalogueOf(tables: Tables): Catalogue {
  /** Undefined if it is unknown. */
  const typeOf = (node: Node | undefined): string | undefined => {
    switch (node?.type) {
      case 'TypeCast':
        return typeNamed(inField(node, 'typeName')[0]!)
      case 'A_Const':
        return node.raw.sval === undefined ? (node.raw.ival === undefined ? undefined : 'int4') : 'unknown'
      case 'ColumnRef':
        return tables.columns.get(namesIn(node, 'fields').at(-1) ?? '')
      case 'FuncCall':
      case 'A_Expr':
        return only(candidates(node).map(({ result }) => result))
      case 'CoalesceExpr':
      case 'MinMaxExpr':
        return inField(node, 'args').map(typeOf).find(isConcrete)
      default:
        return undefined
    }
  }

  const candidates = (node: Node): Routine[] => {
    const isCall = node.type === 'FuncCall'
    const name = namesIn(node, isCall ? 'funcname' : 'name').at(-1) ?? ''
    const named = (isCall ? tables.functions : tables.operators).get(name) ?? []
    const given = isCall ? inField(node, 'args') : [...inField(node, 'lexpr'), ...inField(node, 'rexpr')]
    const types = given.map(typeOf)
    // A bare text has the type of the other side, as in PostgreSQL; so has any compared value.
    const isComparison = named.every(({ result }) => result === 'bool')
    const followsOther = (type: string | undefined): boolean =>
      type === 'unknown' || (type === undefined && isComparison)
    const known = types.map((type, at) => (!isCall && followsOther(type) ? twin(named, types[1 - at]) : type))
    const fitting = named.filter(each => each.isOpen || each.arguments.length === known.length)
    const exact = fitting.filter(each => known.every((type, at) => !isConcrete(type) || type === each.arguments[at]))
    const general = fitting.filter(each => known.every((type, at) => fits(type, each.arguments[at])))
    return exact.length > 0 ? exact : general.length > 0 ? general : fitting
  }

  /** A function of a schema that is not known may do anything. */
  const volatilityOfCall = (node: Node): Volatility => {
    const found = candidates(node)
    const isKnown = found.length > 0 || namesIn(node, 'funcname').length === 1
    return isKnown ? worst(found.map(({ volatility }) => volatility)) : 'volatile'
  }

  const volatilityOfCast = (node: Node): Volatility => {
    const from = typeOf(inField(node, 'arg')[0])
    const to = typeOf(node)
    if (!isConcrete(from) || to === undefined || from === to) return 'immutable'
    const cast = tables.casts.get(`${from} ${to}`)
    return cast === undefined ? worst([tables.types.get(from)?.out, tables.types.get(to)?.into]) : worst([cast])
  }

  return {
    computedDefaultsOf: table => tables.defaults.flatMap(([of, column]) => (of === table ? [column] : [])),
    volatilityOf(node) {
      if (node.type === 'SQLValueFunction') return 'stable'
      if (node.type === 'TypeCast') return volatilityOfCast(node)
      if (node.type === 'FuncCall') return volatilityOfCall(node)
      if (node.type !== 'A_Expr' || node.raw.kind !== 'AEXPR_OP') return 'immutable'
      const types = [...inField(node, 'lexpr'), ...inField(node, 'rexpr')].map(typeOf)
      return types.some(isConcrete) ? worst(candidates(node).map(({ volatility }) => volatility)) : 'immutable'
    },
  }
}

function typeNamed(name: Node): string {
  const own = namesIn(name, 'names').at(-1)!
  return inField(name, 'arrayBounds').length > 0 ? `_${own}` : own
}

function isConcrete(type: string | undefined): type is string {
  return type !== undefined && type !== 'unknown' && !type.startsWith('any')
}

function fits(type: string | undefined, argument: string | undefined): boolean {
  return !isConcrete(type) || argument === undefined || argument === type || argument.startsWith('any')
}

function twin(operators: readonly Routine[], other: string | undefined): string | undefined {
  return operators.some(each => each.arguments.every(type => type === other)) ? other : undefined
}

function only(types: readonly string[]): string | undefined {
  return new Set(types).size === 1 ? types[0] : undefined
}

function worst(letters: readonly (string | undefined)[]): Volatility {
  if (letters.includes('v')) return 'volatile'
  return letters.includes('s') ? 'stable' : 'immutable'
}
