/**
 * Text for terminals. A terminal obeys control characters: a name with some in it could move the cursor, hide a line or turn
 * the direction of writing. They are shown as escapes: `\u001b`.
 */

/** The text with its control characters as escapes, other than tabs, line breaks and the sequences of `keep`. */
export function escapeControls(text: string, keep: ReadonlySet<string> = none): string {
  return text.replaceAll(controls, found => (keep.has(found) ? found : [...found].map(escapeOf).join('')))
}

/** The same for a text of JSON, where only characters beyond ASCII can stand for themselves. */
export function escapeInJson(text: string): string {
  return text.replaceAll(beyondAscii, escapeOf)
}

const none: ReadonlySet<string> = new Set()
// C1 controls, and the characters that turn the direction of writing.
const beyondAscii = /[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are the ones to find
const controls = /\u001b\[\d+m|[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

function escapeOf(character: string): string {
  const code = character.charCodeAt(0)
  return code < 0x20 || code > 0x7e ? `\\u${code.toString(16).padStart(4, '0')}` : character
}
