/** The layers as a Markdown list: each part of `src` with the first sentence of its head comment. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { LAYERS } from '../support/architecture-rules.ts'
import { root } from './pages.ts'

export function layerList(): string {
  return LAYERS.flatMap((parts, at) => parts.map(part => `- **${at + 1}** ${nameOf(part)}: ${designOf(part)}`)).join(
    '\n',
  )
}

function nameOf(part: string): string {
  return part.endsWith('.ts') ? `\`${part}\`` : `\`${part}/\``
}

/** `The core: pure functions.` becomes `pure functions`. */
function designOf(part: string): string {
  const [, comment = ''] = /^(?:#![^\n]*\n)?\/\*\*(.*?)\*\//s.exec(headOf(part)) ?? []
  const [paragraph = ''] = comment
    .replaceAll(/^ *\* ?/gm, '')
    .trim()
    .split('\n\n')
  const [sentence = ''] = paragraph.replaceAll(/\s+/g, ' ').split(/\.(?= |$)/)
  return sentence.replace(/^(?:The )?[A-Za-z ]{1,20}: /, '')
}

/** The file that explains a part: the part itself, or the file in it that has its name, or the only one. */
function headOf(part: string): string {
  const path = join(root, 'src', part)
  if (part.endsWith('.ts')) return readFileSync(path, 'utf8')
  const named = join(path, `${part}.ts`)
  return readFileSync(existsSync(named) ? named : join(path, readdirSync(path)[0]!), 'utf8')
}
