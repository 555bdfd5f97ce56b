/** The table of layers as Markdown: each part of `src` with the first sentence of its head comment. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { LAYERS } from '../support/architecture-rules.ts'
import { root } from './pages.ts'

export function layerTable(): string {
  const rows = LAYERS.flatMap((parts, at) => parts.map(part => [String(at + 1), nameOf(part), designOf(part)]))
  const lines = [['layer', 'part', 'design'], ['---:', '---', '---'], ...rows]
  return lines.map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

function nameOf(part: string): string {
  return part.endsWith('.ts') ? `\`${part}\`` : `\`${part}/\``
}

/** `The core: pure functions.` becomes `pure functions`. */
function designOf(part: string): string {
  const path = join(root, 'src', part.endsWith('.ts') ? part : `${part}/${part}.ts`)
  if (!existsSync(path)) return ''
  const [, comment = ''] = /^(?:#!.*\n)?\/\*\*(.*?)\*\//s.exec(readFileSync(path, 'utf8')) ?? []
  const [paragraph = ''] = comment
    .replaceAll(/^ *\* ?/gm, '')
    .trim()
    .split('\n\n')
  const [sentence = ''] = paragraph.replaceAll(/\s+/g, ' ').split(/\.(?= |$)/)
  const bare = sentence.replace(/^(?:The )?[A-Za-z ]{1,20}: /, '')
  return bare.replaceAll('|', '\\|')
}
