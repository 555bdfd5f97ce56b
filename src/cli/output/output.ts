/**
 * What commands print: data to stdout, everything else to stderr.
 *
 *     print    one document of JSON, or text for people          line   of what follows something: NDJSON, or a line of text
 *     note     for people, beside the data: never with --json    progress  a bar on a terminal, now and then a line elsewhere
 *
 * A text is made by a function that is given the style, so nothing is laid out that nobody reads. Colours, symbols and the
 * width come from the terminal; piped output has no colours, is never cut, and stays the same from version to version.
 */
import type { Logger } from '../../telemetry/telemetry.ts'
import { type Progress, progressFor } from './progress.ts'

export interface Style {
  readonly colour: Colours
  /** The width of the terminal; undefined where lines are not cut. */
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

export interface Output {
  readonly isJson: boolean
  /** What the command came to. */
  print(value: unknown, text: (style: Style) => string): void
  /** One of many, as they come. */
  line(value: unknown, text: (style: Style) => string): void
  /** For people only. */
  note(text: string | ((style: Style) => string)): void
  progress(what: string): Progress
}

export interface Stream {
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
  write(text: string): unknown
}

export interface OutputOptions {
  readonly stdout: Stream
  readonly stderr: Stream
  readonly env: NodeJS.ProcessEnv
  readonly isJson: boolean
  readonly color: boolean | undefined
}

export function openOutput({ stdout, stderr, env, isJson, color }: OutputOptions): Output {
  const styleOf = (stream: Stream): Style => styleFor({ stream, env, color })
  return {
    isJson,
    print(value, text) {
      const shown = isJson ? toJson(value, 2) : text(styleOf(stdout))
      if (shown !== '') stdout.write(`${shown}\n`)
    },
    line(value, text) {
      stdout.write(`${isJson ? toJson(value) : text(styleOf(stdout))}\n`)
    },
    note(text) {
      if (!isJson) stderr.write(`${typeof text === 'string' ? text : text(styleOf(stderr))}\n`)
    },
    progress: what => progressFor(stderr, styleOf(stderr), { what, isSilent: isJson }),
  }
}

export function styleFor(around: Surroundings): Style {
  const { stream, env } = around
  const isUnicode = env.TERM !== 'dumb' && /utf-?8/i.test(env.LC_ALL || env.LC_CTYPE || env.LANG || 'UTF-8')
  return {
    colour: coloursFor(around),
    width: stream.isTTY ? Math.max(40, stream.columns ?? 80) : undefined,
    symbols: isUnicode ? unicode : ascii,
    now: new Date(),
  }
}

const unicode: Symbols = { ellipsis: '…', branch: '├─ ', last: '└─ ', pipe: '│  ', full: '█', empty: '░' }
const ascii: Symbols = { ellipsis: '~', branch: '|- ', last: '`- ', pipe: '|  ', full: '#', empty: '.' }

/** Positions are text, as they do not fit the numbers of every reader. */
export function toJson(value: unknown, indent?: number): string {
  const plain = (_: string, each: unknown): unknown => (typeof each === 'bigint' ? `${each}` : each)
  return JSON.stringify(value, plain, indent)
}

// Colours, where there is somebody to see them: on a terminal, unless NO_COLOR, FORCE_COLOR or a flag says otherwise.

export interface Colours {
  bold(text: string): string
  dim(text: string): string
  red(text: string): string
  green(text: string): string
  yellow(text: string): string
  cyan(text: string): string
}

export interface Surroundings {
  readonly stream: Stream
  readonly env: NodeJS.ProcessEnv
  readonly color: boolean | undefined
}

export function coloursFor(around: Surroundings): Colours {
  return isColoured(around) ? coloured : plain
}

function isColoured({ stream, env, color }: Surroundings): boolean {
  if (color !== undefined) return color
  if (env.NO_COLOR) return false
  if (env.FORCE_COLOR !== undefined) return env.FORCE_COLOR !== '0' && env.FORCE_COLOR !== 'false'
  return stream.isTTY === true && env.TERM !== 'dumb'
}

const paint =
  (on: number, off: number) =>
  (text: string): string =>
    text === '' ? '' : `\u001b[${on}m${text}\u001b[${off}m`

const coloured: Colours = {
  bold: paint(1, 22),
  dim: paint(2, 22),
  red: paint(31, 39),
  green: paint(32, 39),
  yellow: paint(33, 39),
  cyan: paint(36, 39),
}

const same = (text: string): string => text
const plain: Colours = { bold: same, dim: same, red: same, green: same, yellow: same, cyan: same }

// What a store that runs things has to say, on stderr: warnings and errors only.

export function complaints(out: Output): Logger {
  const tell = (paint: 'yellow' | 'red') => (fields: object, message: string) =>
    out.note(style => `${style.colour[paint](message)} ${style.colour.dim(toJson(briefly(fields)))}`)
  return { debug() {}, info() {}, warn: tell('yellow'), error: tell('red') }
}

/** An error by its message, a statement by its label. */
function briefly({ text: _, ...fields }: { text?: unknown }): object {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? value.message : value]),
  )
}
