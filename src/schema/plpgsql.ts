/**
 * SQL functions of the schema, in a notation that reads like SQL.
 *
 *     export const countOpen = plpgsql({ revision: 3 })`
 *       create function ~count_open(p_stream text, out total bigint)
 *       begin
 *         ${lockStream}
 *         select count(*) into total from ~orders where stream = p_stream;
 *       end`
 *
 * The notation has two rules:
 * - `~orders` is the table, sequence or function `orders` of the store's own schema, and `'~orders'` is its name as
 *   text, as `nextval` and `regclass` take it. (The operators `~` and `~*` are followed by a space and are not
 *   changed.)
 * - `${…}` puts in a fragment: a block that several functions share and that is written once. It is indented like the
 *   line it stands in. Nothing but a fragment can be put in, so no value ever becomes part of a function's text.
 *
 * Guarantees:
 * - The text is the current state of the function, not its history. Changing it is editing it and raising its
 *   revision.
 * - The revision is the first line of the body, so the database itself knows which one it has. `sync` replaces a
 *   function only by a higher revision, so processes of two versions that run side by side do not replace each
 *   other's functions.
 * - Every function of `plpgsql` is VOLATILE: each of its statements sees all commits before that statement began. The
 *   order of reads in `announce` and `settle` depends on it.
 * - Every function of `plpgsql` has `jit = off`. Compiling a plan takes longer than running these statements, and the
 *   settings that forbid a plan shape make every plan look expensive enough to be compiled.
 *
 * What can fail: a text without a name, or without a body, throws when its module is loaded. A wrong name or a wrong
 * statement is found by the database, in `sync` or at the first call; the tests call every function.
 */
import { Fragment, identifier, literal } from '../database/sql.ts'

export interface SqlFunction {
  readonly name: string
  /** Raised with every change of the text. A test keeps the checksum of each text with its revision. */
  readonly revision: number
  /**
   * The names of this schema that it uses, itself included: a test checks that each belongs to a folder it may know.
   */
  readonly uses: ReadonlySet<string>
  /** The statement that makes it, or replaces the existing one. */
  create(schema: string, numbers: Numbers): string
  /** Its body alone, as the catalogue has it. */
  body(schema: string, numbers: Numbers): string
}

/**
 * How a schema draws its numbers: from sequences, under an announced bound, or from rows of `counters`, which keeps the
 * order wherever the rows of the schema are. Chosen when the schema is made, and never changed.
 */
export type Numbers = 'announced' | 'counter'

type Template = (strings: TemplateStringsArray, ...parts: readonly Fragment[]) => SqlFunction

/**
 * For functions whose every statement has an index to use: the planner does not know how many rows an array of
 * parameters has, and takes a scan of the whole table for cheaper as soon as it guesses too many. And a connection
 * keeps its plans: made while the tables are small, they would be used when the tables are large.
 *
 * With the shape of the plan given, one plan fits all values. Without `force_generic_plan` a statement with arrays
 * would be planned at every call: knowing their length always looks cheaper. (Publish to settled: 2.9 ms instead of
 * 3.4.)
 */
export const byIndexOnly: readonly string[] = [
  'enable_seqscan = off',
  'enable_hashjoin = off',
  'enable_mergejoin = off',
  'plan_cache_mode = force_generic_plan',
]

/** For functions that take the first few of an index: never all of them, sorted, because few were there at planning. */
export const inIndexOrder: readonly string[] = [...byIndexOnly, 'enable_bitmapscan = off']

export interface FunctionOptions {
  readonly revision: number
  /** Settings while it runs, in addition to `jit = off`. */
  readonly settings?: readonly string[] | undefined
}

/** A function with statements of its own; its body begins with `declare` or `begin` at the margin. */
export function plpgsql({ revision, settings = [] }: FunctionOptions): Template {
  const lines = [...settings, 'jit = off'].map(setting => `set ${setting}`)
  return routine(revision, ['language plpgsql volatile', ...lines], /^(declare|begin)$/m)
}

/** PostgreSQL's word for the things that an expression depends on. */
type Volatility = 'immutable' | 'stable' | 'volatile'

/**
 * A function that is one expression, `select …` at the margin. PostgreSQL puts the expression in the place of the call,
 * which a setting of the function's own would prevent.
 */
export function expression({ revision, volatility }: { revision: number; volatility: Volatility }): Template {
  return routine(revision, [`language sql ${volatility} parallel safe`], /^select\b/m)
}

/** Statements of its own, and yet declared to depend on nothing but its arguments: see `clock`. */
export function declaredImmutable({ revision }: { revision: number }): Template {
  return routine(revision, ['language plpgsql immutable parallel safe cost 1'], /^(declare|begin)$/m)
}

/** One function with two bodies, of one signature and one revision: the schema has the one for its numbers. */
export function byNumbers(bodies: Readonly<Record<Numbers, SqlFunction>>): SqlFunction {
  const { announced, counter } = bodies
  return {
    name: announced.name,
    revision: announced.revision,
    uses: new Set([...announced.uses, ...counter.uses]),
    body: (schema, numbers) => bodies[numbers].body(schema, numbers),
    create: (schema, numbers) => bodies[numbers].create(schema, numbers),
  }
}

/** A piece of a function that depends on the numbers of the schema, where the rest of the text is the same for both kinds. */
export function pieceByNumbers(pieces: Readonly<Record<Numbers, Fragment>>): Fragment {
  return new PieceByNumbers(pieces)
}

class PieceByNumbers extends Fragment {
  readonly pieces: Readonly<Record<Numbers, Fragment>>
  constructor(pieces: Readonly<Record<Numbers, Fragment>>) {
    super([''], [])
    this.pieces = pieces
  }
}

/** The revision of a function that is in the database, from its `prosrc`; 0 if it has none. */
export function revisionOf(body: string): number {
  return Number(/^\s*-- revision (\d+)\n/.exec(body)?.[1] ?? 0)
}

/** `~name` for this schema. Between quotes it is text, and the quotes in a schema's own name are doubled. */
export function nameIn(schema: string, text: string): string {
  return text
    .replaceAll(/'~([a-z]\w*)'/g, (_, name: string) => literal(identifier(schema, name).quoted))
    .replaceAll(ourName, (_, name: string) => identifier(schema, name).quoted)
}

// An operator is preceded by a space and followed by one, so a name is what follows without one.
const ourName = /~([a-z]\w*)/g

/** Left out where the rows may be on another server. */
const genericPlans = 'set plan_cache_mode = force_generic_plan'

function routine(revision: number, declared: readonly string[], bodyBegins: RegExp): Template {
  return (strings, ...parts) => {
    const whole = new Fragment(strings, parts)
    const texts = { announced: textOf(whole, 'announced'), counter: textOf(whole, 'counter') }
    const text = texts.announced
    const name = /^create function ~([a-z]\w*)\(/.exec(text)?.[1]
    const at = text.search(bodyBegins)
    if (name === undefined || at === -1)
      throw new Error(`A function is written as "create function ~name(…)" and its body, not: ${text.slice(0, 60)}`)
    const head = text.slice('create function '.length, at).trimEnd()
    const body = (schema: string, numbers: Numbers): string =>
      nameIn(schema, `\n-- revision ${revision}\n${texts[numbers].slice(at)}\n`)
    return {
      name,
      revision,
      uses: new Set(Object.values(texts).flatMap(each => [...each.matchAll(ourName)].map(match => match[1]!))),
      body,
      create: (schema, numbers) => {
        // A node of a cluster plans an insert from parameters once they are known, and a generic plan never.
        const lines = numbers === 'counter' ? declared.filter(line => line !== genericPlans) : declared
        return [
          `create or replace function ${nameIn(schema, head)}`,
          ...lines,
          `as ${quoteBody(body(schema, numbers))}`,
        ].join('\n')
      },
    }
  }
}

/** Dollar quotes, so that the body can be read and pasted as it is; with a tag that does not occur in it. */
function quoteBody(body: string): string {
  let tag = '$body$'
  for (let n = 2; body.includes(tag); n++) tag = `$body${n}$`
  return `${tag}${body}${tag}`
}

/** The text of a fragment at the margin. A fragment inside it is indented like the line in which it stands. */
function textOf(given: Fragment, numbers: Numbers): string {
  const { strings, parts } = given instanceof PieceByNumbers ? given.pieces[numbers] : given
  let text = strings[0]!
  for (const [at, part] of parts.entries()) {
    if (!(part instanceof Fragment)) throw new Error('Only a fragment can be part of a function, not a value.')
    const indent = /^[^\S\n]*/.exec(text.slice(text.lastIndexOf('\n') + 1))![0]
    text += textOf(part, numbers).replaceAll('\n', `\n${indent}`) + strings[at + 1]!
  }
  return withoutIndent(text)
}

/** Moves the text to the margin by the indent of its first line. */
function withoutIndent(text: string): string {
  const trimmed = text.replace(/^\s*\n/, '').trimEnd()
  const indent = /^[^\S\n]*/.exec(trimmed)![0]
  return trimmed
    .split('\n')
    .map(line => (line.startsWith(indent) ? line.slice(indent.length) : line.trimStart()))
    .join('\n')
}
