/** Fields in COPY's text form: tabs between them, a line each, backslashes before what would look like either. */

/** A value as a field; undefined is null. */
export function copyField(value: string | undefined): string {
  if (value === undefined) return '\\N'
  return special.test(value) ? value.replace(/[\\\t\n\r]/g, character => escapes[character]!) : value
}

/** A field's value. Null has to be looked for before: it is `\N`. */
export function copiedValue(field: string): string {
  return field.includes('\\') ? field.replace(/\\(.)/g, (_, letter: string) => meanings[letter] ?? letter) : field
}

const special = /[\\\t\n\r]/
const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }
const meanings: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }
