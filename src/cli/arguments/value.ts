/** Text of the line as a value of its kind. */
import type { Kinds, Option } from '../command.ts'
import { WrongUsage } from '../usage.ts'

export function readValue(
  label: string,
  option: Pick<Option, 'kind' | 'choices'>,
  text: string,
  line: string,
): unknown {
  const value = option.kind === 'flag' ? undefined : readers[option.kind](text)
  if (value === undefined) throw wrong(label, expectations[option.kind as keyof Kinds], text, line)
  if (option.choices !== undefined && !option.choices.includes(text))
    throw wrong(label, `one of ${option.choices.join(', ')}`, text, line)
  return value
}

const units: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

const readers: { readonly [K in keyof Kinds]: (text: string) => Kinds[K] | undefined } = {
  text: text => text,
  whole: text => (/^\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined),
  position: text => (/^\d{1,19}$/.test(text) ? Number(text) : undefined),
  time(text) {
    const [, count, unit] = /^(\d+)([smhd])$/.exec(text) ?? []
    if (count !== undefined) return new Date(Date.now() - Number(count) * units[unit!]!)
    const time = new Date(text)
    return Number.isNaN(time.getTime()) ? undefined : time
  },
  json(text) {
    try {
      return JSON.parse(text) as unknown
    } catch {
      return undefined
    }
  },
}

const expectations: Readonly<Record<keyof Kinds, string>> = {
  text: 'text',
  whole: 'a whole number',
  position: 'a position: a whole number',
  time: 'a time: 2026-01-31T12:00:00Z, or 15m for a quarter of an hour ago',
  json: `JSON, in single quotes for the shell: '{"total":99}'`,
}

function wrong(label: string, expected: string, text: string, line: string): Error {
  const shown = text.length > 60 ? `${text.slice(0, 59)}…` : text
  return new WrongUsage({
    reason: `${label} must be ${expected}, not ${JSON.stringify(shown)}`,
    hint: `${line} --help`,
  })
}
