/** Source files and pages for the architecture rules: the code without comments, and the imports. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'

export interface Source {
  /** From the root of the repository, with forward slashes. */
  path: string
  text: string
}

export interface Import {
  /** A path like `Source.path` for a relative import, otherwise the name as written. */
  target: string
  line: number
}

export function readSources(...folders: string[]): Source[] {
  return folders
    .filter(folder => existsSync(folder))
    .flatMap(folder => readdirSync(folder, { recursive: true, encoding: 'utf8' }).map(file => join(folder, file)))
    .map(path => path.replaceAll('\\', '/'))
    .filter(path => /\.(ts|tsx|js|mjs)$/.test(path) && !path.includes('node_modules/'))
    .sort()
    .map(path => ({ path, text: readFileSync(path, 'utf8') }))
}

/** The pages in these folders, and these pages. */
export function readDocuments(...places: string[]): Source[] {
  return places
    .flatMap(place =>
      place.endsWith('.md')
        ? [place]
        : readdirSync(place, { recursive: true, encoding: 'utf8' }).map(file => join(place, file)),
    )
    .map(path => path.replaceAll('\\', '/'))
    .filter(path => path.endsWith('.md') && !path.includes('node_modules/') && !path.includes('/.vitepress/'))
    .sort()
    .map(path => ({ path, text: readFileSync(path, 'utf8') }))
}

/** Comments, strings, templates, and regular expressions where a division cannot stand. */
const TOKENS = new RegExp(
  [
    /\/\*[\s\S]*?\*\//,
    /\/\/[^\n]*/,
    /'(?:\\.|[^'\\\n])*'/,
    /"(?:\\.|[^"\\\n])*"/,
    /`(?:\\[\s\S]|[^`\\])*`/,
    /(?<=[=(,:[!&|?{};]\s*|return\s+)\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\//,
  ]
    .map(token => token.source)
    .join('|'),
  'g',
)

/** The text without comments and, if asked, without the insides of literals. Everything keeps its line. */
export function codeOf(text: string, literals: 'keep' | 'blank'): string {
  return text.replace(TOKENS, token => {
    const isComment = token.startsWith('//') || token.startsWith('/*')
    return isComment || literals === 'blank' ? token.replace(/[^\n]/g, ' ') : token
  })
}

export function importsOf({ path, text }: Source): Import[] {
  const code = codeOf(text, 'keep')
  const statements = /\b(?:import|export)\s(?:[^;'"()]*?\sfrom\s)?\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/g
  return [...code.matchAll(statements)].map(match => {
    const name = match[1] ?? match[2] ?? ''
    const target = name.startsWith('.') ? posix.join(posix.dirname(path), name) : name
    return { target, line: lineAt(code, match.index + match[0].length) }
  })
}

export function lineAt(text: string, index: number): number {
  return text.slice(0, index).split('\n').length
}
