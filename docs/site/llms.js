/**
 * `llms.txt`: every page of the documentation with its first sentence, for programs that read. The folder `docs` is in the
 * package, so its addresses work there and on the site.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'

const docs = fileURLToPath(new URL('..', import.meta.url))

/** The pages in the order of the index, which has all but those of single errors. */
export function indexedPages() {
  const index = readFileSync(join(docs, 'README.md'), 'utf8')
  const links = [...index.matchAll(/\]\((?!https?:|\.\.\/)([^)#]+\.md)/g)].map(([, path]) => normalize(path))
  return [...new Set(links)]
}

/** All pages: paths from `docs`. */
export function allPages() {
  return readdirSync(docs, { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md') && !name.startsWith('site'))
    .sort()
}

export function llmsText() {
  const sections = new Map()
  for (const path of indexedPages()) {
    const folder = dirname(path)
    // They are for contributors, and not in the package.
    if (folder === 'internals') continue
    const title = folder === '.' ? 'Begin' : `${folder[0].toUpperCase()}${folder.slice(1)}`
    sections.set(title, [...(sections.get(title) ?? []), `- [${titleOf(path)}](${path}): ${sentenceOf(path)}`])
  }
  const parts = [...sections].map(([title, lines]) => `## ${title}\n\n${lines.join('\n')}`)
  return `${[head, ...parts].join('\n\n')}\n`
}

const head = `# Rillflow

> A document and event store with projections, subscriptions and durable workflows for TypeScript, on PostgreSQL: embedded
> with zero set-up, the same on a server.

Before you write code with it, read [the skill](SKILL.md). Each error has a page of its own:
\`reference/errors/<code>.md\`. Paths are from this file, which is \`node_modules/rillflow/docs/llms.txt\` in the package.`

function titleOf(path) {
  return /^# (.*)$/m.exec(readFileSync(join(docs, path), 'utf8'))[1].replaceAll('`', '')
}

/** The first sentence under the title. */
function sentenceOf(path) {
  const paragraph = readFileSync(join(docs, path), 'utf8')
    .split(/\n{2,}/)
    .find(each => /^[A-Z[`*]/.test(each))
  const text = (paragraph ?? '')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/\*\*|_/g, '')
  return /^.*?[.:](?= |$)/.exec(text)?.[0].replace(/:$/, '.') ?? text
}
