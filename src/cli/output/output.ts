/**
 * The output of commands: data to stdout, everything else to stderr.
 *
 *     print     the result: one JSON document, or text for people
 *     line      one item of a stream: a line of NDJSON, or a line of text
 *     note      a message for people; nothing with --json
 *     progress  a bar on a terminal, a line every few seconds elsewhere
 *
 * Guarantees:
 * - A text is made only if it is printed: it is a function of the style.
 * - Colours, symbols and the width come from the terminal. Piped output has no colours and is never cut.
 * - Control characters in names and data never reach the terminal: they are shown as escapes.
 */
import { escapeControls, escapeInJson } from '../../core/printable.ts'
import type { Logger } from '../../telemetry/telemetry.ts'
import { type Progress, progressFor } from './progress.ts'

export interface Output {
  readonly isJson: boolean
  print(value: unknown, text: (style: Style) => string): void
  line(value: unknown, text: (style: Style) => string): void
  note(text: string | ((style: Style) => string)): void
  progress(title: string): Progress
}

export interface OutputOptions {
  readonly stdout: Stream
  readonly stderr: Stream
  readonly env: NodeJS.ProcessEnv
  readonly isJson: boolean
  /** The choice of `--color` and `--no-color`. */
  readonly color: boolean | undefined
}

export interface Stream {
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
  write(text: string): unknown
}

export function openOutput({ stdout, stderr, env, isJson, color }: OutputOptions): Output {
  const styleOf = (stream: Stream): Style => styleFor({ stream, env, color })
  return {
    isJson,
    print(value, text) {
      const shown = isJson ? toJson(value, 2) : printable(text(styleOf(stdout)))
      if (shown !== '') stdout.write(`${shown}\n`)
    },
    line(value, text) {
      stdout.write(`${isJson ? toJson(value) : printable(text(styleOf(stdout)))}\n`)
    },
    note(text) {
      if (!isJson) stderr.write(`${printable(typeof text === 'string' ? text : text(styleOf(stderr)))}\n`)
    },
    progress: title => progressFor(stderr, styleOf(stderr), { title, isSilent: isJson }),
  }
}

/** JSON as commands print it: without `indent` in one line. Characters that a terminal obeys are escapes in it. */
export function toJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, undefined, indent) as string | undefined
  return (text === undefined ? text : escapeInJson(text)) as string
}

/** The text without control characters, other than the colours of `Colours`. */
export function printable(text: string): string {
  return escapeControls(text, ownColours)
}

/** A logger for a store that runs something: it prints warnings and errors as notes. */
export function warningLogger(out: Output): Logger {
  const print = (colour: 'yellow' | 'red') => (fields: object, message: string) =>
    out.note(style => `${style.colour[colour](message)} ${style.colour.dim(toJson(shortened(fields)))}`)
  return { debug() {}, info() {}, warn: print('yellow'), error: print('red') }
}

/** Errors become their messages. The text of a statement is left out, because its label is there too. */
function shortened({ text: _, ...fields }: { text?: unknown }): object {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? value.message : value]),
  )
}

export interface Style {
  readonly colour: Colours
  /** The width of the terminal; undefined if lines are not cut. */
  readonly width: number | undefined
  readonly symbols: Symbols
  readonly now: Date
}

export interface Symbols {
  readonly ellipsis: string
  readonly branch: string
  readonly last: string
  readonly pipe: string
  readonly full: string
  readonly empty: string
}

export interface Colours {
  bold(text: string): string
  dim(text: string): string
  red(text: string): string
  green(text: string): string
  yellow(text: string): string
  cyan(text: string): string
}

export interface StyleOptions {
  readonly stream: Stream
  readonly env: NodeJS.ProcessEnv
  readonly color: boolean | undefined
}

export function styleFor(options: StyleOptions): Style {
  const { stream, env } = options
  const isUnicode = env.TERM !== 'dumb' && /utf-?8/i.test(env.LC_ALL || env.LC_CTYPE || env.LANG || 'UTF-8')
  return {
    colour: isColoured(options) ? coloured : uncoloured,
    width: stream.isTTY ? Math.max(40, stream.columns ?? 80) : undefined,
    symbols: isUnicode ? unicode : ascii,
    now: new Date(),
  }
}

/** A terminal has colours, unless a flag, NO_COLOR or FORCE_COLOR says otherwise. */
function isColoured({ stream, env, color }: StyleOptions): boolean {
  if (color !== undefined) return color
  if (env.NO_COLOR) return false
  if (env.FORCE_COLOR !== undefined) return env.FORCE_COLOR !== '0' && env.FORCE_COLOR !== 'false'
  return stream.isTTY === true && env.TERM !== 'dumb'
}

const unicode: Symbols = { ellipsis: '…', branch: '├─ ', last: '└─ ', pipe: '│  ', full: '█', empty: '░' }
const ascii: Symbols = { ellipsis: '~', branch: '|- ', last: '`- ', pipe: '|  ', full: '#', empty: '.' }

const escaped =
  (on: number, off: number) =>
  (text: string): string =>
    text === '' ? '' : `\u001b[${on}m${text}\u001b[${off}m`

/** The sequences that `Colours` writes. */
const ownColours: ReadonlySet<string> = new Set([1, 2, 22, 31, 32, 33, 36, 39].map(code => `\u001b[${code}m`))

const coloured: Colours = {
  bold: escaped(1, 22),
  dim: escaped(2, 22),
  red: escaped(31, 39),
  green: escaped(32, 39),
  yellow: escaped(33, 39),
  cyan: escaped(36, 39),
}

const same = (text: string): string => text
const uncoloured: Colours = { bold: same, dim: same, red: same, green: same, yellow: same, cyan: same }
