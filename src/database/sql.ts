/**
 * The one way to build a statement.
 *
 *     sql`/* events.get *\/ select … from ${table} where event_id = ${id}::uuid`
 *
 * An interpolated `Identifier` is put into the text, quoted; everything else becomes a bind parameter. The leading
 * comment names the statement: in errors, in `pg_stat_statements`, and as the stem of its prepared name.
 */
import { createHash } from 'node:crypto'
import { InvalidName } from '../core/errors.ts'

export interface Statement {
  /** The name in the leading comment, e.g. `events.get`. */
  readonly label: string
  readonly text: string
  readonly values: readonly unknown[]
  /** True for one that is not worth being kept prepared on its connection. */
  readonly unprepared?: boolean | undefined
  /** Set for one that cannot be part of a transaction, as building an index beside writers: how long it may take. */
  readonly alone?: { readonly timeoutMs: number } | undefined
}

export function sql(strings: TemplateStringsArray, ...parts: readonly unknown[]): Statement {
  let text = strings[0] as string
  const values: unknown[] = []
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i]
    if (part instanceof Identifier) text += part.quoted
    else text += `$${values.push(part)}`
    text += strings[i + 1]
  }
  return { label: labelOf(strings), text, values }
}

/** A name that goes into SQL text. Made by `identifier` only, so it is always quoted. */
export class Identifier {
  readonly quoted: string
  constructor(quoted: string) {
    this.quoted = quoted
  }
  toString(): string {
    return this.quoted
  }
}

/** Quotes a name, or a schema and a name in it. */
export function identifier(...names: readonly string[]): Identifier {
  return new Identifier(names.map(quote).join('.'))
}

/** A number in SQL text, for the few commands that take no bind parameters. */
export function numeral(value: bigint | number): Identifier {
  return new Identifier(BigInt(value).toString())
}

/** A string in SQL text, for what takes no bind parameters: a function's body, an index's expression. */
export function literal(text: string): string {
  const doubled = text.replaceAll("'", "''")
  return doubled.includes('\\') ? `E'${doubled.replaceAll('\\', '\\\\')}'` : `'${doubled}'`
}

/**
 * The name a statement is prepared under. The text is part of it, because the same statement has another text in
 * each schema, and one connection may serve many.
 */
export function preparedName(statement: Statement): string {
  let name = preparedNames.get(statement.text)
  if (name === undefined) {
    const digest = createHash('sha256').update(statement.text).digest('base64url').slice(0, 16)
    name = `${statement.label.slice(0, 40)}:${digest}`
    if (preparedNames.size >= 10_000) preparedNames.clear()
    preparedNames.set(statement.text, name)
  }
  return name
}

const preparedNames = new Map<string, string>()

// PostgreSQL cuts longer names silently, and two names may then be one.
const longestName = 63

function quote(name: string): string {
  const bytes = Buffer.byteLength(name)
  if (bytes === 0 || bytes > longestName || name.includes('\0'))
    throw new InvalidName({ what: 'Identifier', given: name, reason: `must have 1 to ${longestName} bytes and no NUL` })
  return `"${name.replaceAll('"', '""')}"`
}

const labels = new WeakMap<TemplateStringsArray, string>()

function labelOf(strings: TemplateStringsArray): string {
  let label = labels.get(strings)
  if (label === undefined) {
    label = /^\s*\/\* (\S+) \*\//.exec(strings[0] as string)?.[1] ?? 'statement'
    labels.set(strings, label)
  }
  return label
}
