/** The pages for users: the README and the docs without the internals. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root: string = fileURLToPath(new URL('../..', import.meta.url))

export interface Page {
  /** From the root of the package. */
  readonly path: string
  readonly text: string
}

export const pages: readonly Page[] = ['README.md', ...underDocs()].map(path => ({
  path,
  text: readFileSync(join(root, path), 'utf8'),
}))

function underDocs(): string[] {
  return readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md') && !/^(internals|site)\b/.test(name))
    .sort()
    .map(name => join('docs', name))
}
