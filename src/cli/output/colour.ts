/** Colours, where there is somebody to see them: on a terminal, unless NO_COLOR, FORCE_COLOR or a flag says otherwise. */
import type { Stream } from './output.ts'

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
