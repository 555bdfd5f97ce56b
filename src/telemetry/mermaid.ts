/** Text in a diagram of Mermaid. */

const longestLabel = 100

/** Names come from anywhere: whatever could end the label, or mean something in it, is written by its number. */
export function mermaidLabel(text: string): string {
  const short = text.length > longestLabel ? `${text.slice(0, longestLabel - 1)}…` : text
  return short.replaceAll(/[^\p{L}\p{N} _.,:()/…-]/gu, character => `#${character.codePointAt(0)};`)
}
