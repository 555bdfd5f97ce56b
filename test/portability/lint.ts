/**
 * The rules of `test/portability/citus.md`, by their numbers there, for one statement at a time. Each returns the
 * violations; a statement that runs on Citus as it is has none.
 */
import { allOf, everything, inField, type Node, namesIn, parseBody, parseStatements } from './syntax-tree.ts'
import type { Catalogue } from './volatility.ts'

export interface Finding {
  readonly rule: number
  /** The violating part: `clock_timestamp()`. */
  readonly what: string
}

type Rule = (statement: Node, catalogue: Catalogue) => string[]

/** All violations of a text as one call, each once. */
export function lint(text: string, catalogue: Catalogue): Finding[] {
  const statements = parseStatements(text)
  const findings: Finding[] = statements.length > 1 ? [{ rule: 5, what: 'several statements' }] : []
  const apply = (statement: Node, by: Record<number, Rule>): void => {
    for (const [rule, find] of Object.entries(by))
      for (const what of find(statement, catalogue)) findings.push({ rule: Number(rule), what })
  }
  for (const statement of statements) apply(statement, rules)
  if (statements.some(isPlpgsql)) for (const inner of parseBody(text)) apply(inner, insideFunctions)
  return [...new Map(findings.map(each => [`${each.rule} ${each.what}`, each])).values()]
}

const rules: Record<number, Rule> = {
  5: statement =>
    allOf(statement, 'CreateSchemaStmt').flatMap(schema =>
      inField(schema, 'schemaElts').length > 0 ? ['a schema with its tables'] : [],
    ),

  6: statement => [
    ...allOf(statement, 'AlterTableStmt')
      .filter(alter => new Set(allOf(alter, 'AlterTableCmd').map(({ raw }) => raw.subtype)).size > 1)
      .map(() => 'changes of several kinds'),
    ...allOf(statement, 'CreateStmt')
      .filter(table => inField(table, 'partbound').length > 0 && inField(table, 'partspec').length > 0)
      .map(() => 'partitions of a partition'),
  ],

  16: statement =>
    everything(statement)
      .filter(({ type }) => type !== 'TypeCast')
      .flatMap(({ children }) => children)
      .filter(({ type }) => type === 'ParamRef')
      .map(() => 'a parameter without a cast'),

  19: statement => [
    ...allOf(statement, 'FuncCall')
      .filter(call => /^(pg_current_xact_id|txid_|pg_current_snapshot|pg_snapshot_)/.test(plainName(call)))
      .map(nameOf),
    ...allOf(statement, 'TypeName')
      .map(type => namesIn(type, 'names').at(-1)!)
      .filter(name => /^(xid8?|cid|pg_snapshot|txid_snapshot)$/.test(name)),
    ...(tablesNamed(statement).length === 0 ? [] : allOf(statement, 'ColumnRef'))
      .map(column => namesIn(column, 'fields').at(-1) ?? '')
      .filter(name => /^(xmin|cmin|cmax|ctid)$/.test(name)),
  ],

  20: statement => [
    ...allOf(statement, 'MergeStmt').map(() => 'merge'),
    ...allOf(statement, 'CreateTrigStmt').map(() => 'a trigger'),
    ...allOf(statement, 'RuleStmt').map(() => 'a rule'),
    ...allOf(statement, 'CreateStmt')
      .filter(table => inField(table, 'inhRelations').length > 0 && inField(table, 'partbound').length === 0)
      .map(() => 'inheritance'),
  ],

  // C1, C2
  21: (statement, catalogue) => [
    ...changes(statement)
      .flatMap(change => everythingBut(change, 'withClause'))
      .filter(node => !isOwn(node, catalogue) && catalogue.volatilityOf(node) === 'volatile')
      .map(nameOf),
    ...changes(statement)
      .flatMap(change => everythingBut(change, 'withClause', 'SubLink'))
      .filter(({ type }) => type === 'CaseExpr' || type === 'CoalesceExpr')
      .flatMap(everything)
      .filter(node => catalogue.volatilityOf(node) === 'stable')
      .map(nameOf),
    ...allOf(statement, 'onConflictClause', 'returningClause')
      .flatMap(everything)
      .filter(node => catalogue.volatilityOf(node) !== 'immutable')
      .map(nameOf),
  ],

  // C3
  22: (statement, catalogue) =>
    changes(statement)
      .flatMap(change => everythingBut(change, 'withClause', 'SubLink'))
      .filter(node => catalogue.volatilityOf(node) === 'stable' && allOf(node, 'ColumnRef').length > 0)
      .map(nameOf),

  // C5
  23: (statement, catalogue) =>
    allOf(statement, 'InsertStmt').flatMap(insert => {
      const selects = inField(insert, 'selectStmt').filter(select => tablesNamed(select).length > 0)
      if (selects.length === 0) return []
      const named = inField(insert, 'cols').map(({ raw }) => String(raw.name))
      const [table] = inField(insert, 'relation').map(({ raw }) => String(raw.relname))
      return [
        ...selects
          .flatMap(select => everythingBut(select, 'withClause', 'SubLink'))
          .filter(node => catalogue.volatilityOf(node) === 'stable')
          .map(node => `${nameOf(node)} in an insert from a table`),
        ...catalogue
          .computedDefaultsOf(table!)
          .filter(column => !named.includes(column))
          .map(column => `the default of ${column}`),
      ]
    }),

  24: statement =>
    allOf(statement, 'InsertStmt').flatMap(insert => [
      // C4
      ...valuesOf(insert)
        .flatMap(values => allOf(values, 'SubLink'))
        .map(() => 'a subquery in values'),
      ...(inField(insert, 'selectStmt').some(select => isUnnest(select) && tablesNamed(select).length === 0)
        ? inField(insert, 'onConflictClause')
        : []
      )
        .flatMap(conflict => allOf(conflict, 'ParamRef'))
        .map(() => 'a parameter in on conflict with unnest'),
    ]),

  25: statement => allOf(statement, 'DoStmt').map(() => 'do'),

  26: (statement, catalogue) => [
    // C6. What a CTE inserts is kept on the node of the client, and what is around it runs there.
    ...(tablesNamed(statement).length === 0 || insertsInCte(statement) ? [] : allOf(statement, 'FuncCall'))
      .filter(call => isOwn(call, catalogue) || /^(pg_notify|setval)$/.test(plainName(call)))
      .map(nameOf),
    // C9
    ...(tablesNamed(statement).length > 0 ? [] : allOf(statement, 'FuncCall'))
      .filter(call => /^pg_(try_)?advisory_/.test(plainName(call)))
      .map(call => `${nameOf(call)} without a table`),
  ],

  // C7, C10
  27: statement =>
    allOf(statement, 'FuncCall')
      .filter(call => /^(nextval|currval|setval|lastval)$/.test(plainName(call)))
      .map(nameOf),

  // C11
  30: statement =>
    allOf(statement, 'DropStmt')
      .filter(drop => inField(drop, 'objects').length > 1)
      .map(() => 'several objects dropped at once'),

  28: statement => [
    ...allOf(statement, 'VariableSetStmt')
      .map(({ raw }) => String(raw.name))
      .filter(isGuard),
    ...allOf(statement, 'FuncCall')
      .filter(call => /^(set_config|current_setting)$/.test(plainName(call)))
      .map(call => settingOf(call))
      .filter(isGuard),
  ],

  29: statement => {
    const schemas = [
      ...allOf(statement, 'RangeVar').map(({ raw }) => raw.schemaname as string | undefined),
      ...allOf(statement, 'FuncCall').map(call => namesIn(call, 'funcname').at(-2)),
      ...allOf(statement, 'TypeName').map(type => namesIn(type, 'names').at(-2)),
    ]
    return new Set(schemas.filter(isOurs)).size > 1 ? ['several schemas'] : []
  },
}

/** What a function alone may not do. The statements in its body keep all other rules, but for casts of its arguments. */
const insideFunctions: Record<number, Rule> = {
  ...Object.fromEntries([19, 20, 21, 22, 23, 24, 26, 27, 29].map(rule => [rule, rules[rule]!])),
  25: statement => [
    ...allOf(statement, 'CreateStmt', 'CreateTableAsStmt').map(() => 'create table in a function'),
    ...allOf(statement, 'A_Const')
      .filter(({ children }) => children.some(({ raw }) => /\bcreate\s+(unlogged\s+)?table\b/i.test(String(raw.sval))))
      .map(() => 'create table in a function'),
  ],
}

function isPlpgsql(statement: Node): boolean {
  return allOf(statement, 'DefElem').some(
    ({ raw, children }) => raw.defname === 'language' && children.some(({ raw: { sval } }) => sval === 'plpgsql'),
  )
}

function isOurs(schema: string | undefined): boolean {
  return schema !== undefined && schema !== 'pg_catalog' && schema !== 'information_schema'
}

/** A call of a function of the schema, but for those that are declared immutable, so that they run where the rows are. */
function isOwn(node: Node, catalogue: Catalogue): boolean {
  return (
    node.type === 'FuncCall' && isOurs(namesIn(node, 'funcname').at(-2)) && catalogue.volatilityOf(node) !== 'immutable'
  )
}

function plainName(call: Node): string {
  return namesIn(call, 'funcname').at(-1)!
}

function changes(statement: Node): Node[] {
  return allOf(statement, 'UpdateStmt', 'DeleteStmt')
}

/** Everything in it but parts of these types: a CTE, or a query inside an expression, is planned by itself. */
function everythingBut(node: Node, ...left: readonly string[]): Node[] {
  return [
    node,
    ...node.children.filter(child => !left.includes(child.type)).flatMap(each => everythingBut(each, ...left)),
  ]
}

function tablesNamed(statement: Node): Node[] {
  return allOf(statement, 'RangeVar').filter(({ raw }) => isOurs(raw.schemaname as string | undefined))
}

function insertsInCte(statement: Node): boolean {
  return allOf(statement, 'CommonTableExpr').some(({ children }) => children.some(({ type }) => type === 'InsertStmt'))
}

function valuesOf(insert: Node): Node[] {
  return inField(insert, 'selectStmt').flatMap(select => inField(select, 'valuesLists'))
}

function isUnnest(select: Node): boolean {
  return allOf(select, 'RangeFunction').some(({ field }) => field === 'fromClause')
}

/** The name of a setting in the text. */
function settingOf(call: Node): string {
  const [name] = inField(call, 'args')
  return String(name?.children[0]?.raw.sval ?? '')
}

/** The schema's name separates tenants: session settings must not. Two settings choose how a new schema is made. */
function isGuard(setting: string): boolean {
  if (setting === 'rillflow.numbers' || setting === 'citus.enable_schema_based_sharding') return false
  return setting.includes('.') || setting === 'search_path'
}

function nameOf(node: Node): string {
  if (node.type === 'FuncCall') return `${plainName(node)}()`
  if (node.type === 'TypeCast') return `::${namesIn(inField(node, 'typeName')[0]!, 'names').at(-1)}`
  return node.type === 'A_Expr' ? namesIn(node, 'name').at(-1)! : String(node.raw.op)
}
