/** What a store that runs things has to say, on stderr: warnings and errors only. */
import type { Logger } from '../telemetry/telemetry.ts'
import type { Output } from './output/output.ts'
import { toJson } from './output/output.ts'

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
