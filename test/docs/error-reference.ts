/** The reference of all errors as Markdown, generated from their declarations: one page of all, and a page of each. */
import { readdirSync, readFileSync } from 'node:fs'
import { inspect } from 'node:util'
import { errorPage, type RillflowError } from '../../src/core/errors.ts'
import * as common from '../../src/index.ts'
import { statusOf } from '../../src/server/api/answer.ts'
import { type Page, pages } from './pages.ts'

const folder = new URL('../../src/', import.meta.url)

export async function errorReference(): Promise<string> {
  const parts = [intro]
  for (const { title, errors } of await foldersOfErrors()) {
    parts.push(`## ${title}`)
    for (const { name, error } of errors) {
      const note = error.retryable ? ' · can be tried again' : ''
      parts.push(
        `### ${error.code}\n\n\`${name}\`${note} · [more](errors/${error.code}.md)\n\n> ${oneLine(error.message)}`,
      )
    }
  }
  return `${parts.join('\n\n')}\n`
}

/** The page of each error, by its path. */
export async function errorPages(): Promise<Map<string, string>> {
  const all = (await foldersOfErrors()).flatMap(({ errors }) => errors)
  return new Map(all.map(each => [errorPage(each.error.code), pageOf(each)]))
}

interface DescribedError {
  readonly name: string
  readonly error: RillflowError
  /** Field and type. */
  readonly fields: readonly (readonly [string, string])[]
}

async function foldersOfErrors(): Promise<{ title: string; errors: DescribedError[] }[]> {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(name => name.endsWith('/errors.ts'))
  // The general errors first, then those of each folder.
  files.sort((a, b) => Number(b === 'core/errors.ts') - Number(a === 'core/errors.ts') || a.localeCompare(b))
  return Promise.all(files.map(errorsOf))
}

async function errorsOf(file: string): Promise<{ title: string; errors: DescribedError[] }> {
  const source = readFileSync(new URL(file, folder), 'utf8')
  const kinds = (await import(new URL(file, folder).href)) as Record<string, Kind>
  const title = file === 'core/errors.ts' ? 'general' : file.replace('/errors.ts', '').replaceAll('/', ': ')
  const found = [...source.matchAll(/^export const (?<name>\w+): ErrorKind<(?<type>.*?)=\s/gms)]
  const errors = found.map(({ groups }) => {
    const fields = [...groups!.type!.matchAll(/(\w+)(\??): ([^;}]+)/g)]
    const optional = fields.filter(([, , mark]) => mark === '?').map(([, field]) => field!)
    const kind = kinds[groups!.name!]!
    const types = fields.map(([, field, , type]) => [field!, oneLine(type!)] as const)
    return { name: kind.name, error: new kind(placeholders(optional)), fields: types }
  })
  return { title: `${title[0]!.toUpperCase()}${title.slice(1)}`, errors }
}

interface Kind {
  new (data: object): RillflowError
  readonly name: string
}

function pageOf({ name, error, fields }: DescribedError): string {
  const { code, message, retryable } = error
  const entry = name in common ? "'rillflow' or 'rillflow/errors'" : "'rillflow/errors'"
  const retry = retryable
    ? 'The same call can succeed when it is made again (`retryable`).'
    : 'The same call will fail again: something has to change first.'
  const data = fields.map(([field, type]) => `- \`${field}\`: \`${type}\``)
  const parts = [
    `# ${code}`,
    `> ${oneLine(message)}`,
    retry,
    `Catch it with \`isRillflowError(error, '${code}')\`, or with \`error instanceof ${name}\` (from \`${entry}\`). Over HTTP its status is ${statusOf(code)}.`,
    ...(data.length === 0 ? [] : ['## Its data', data.join('\n')]),
    ...advice(code),
    ...mentions(code),
    'All errors are in [one list](../errors.md). This page is generated from the code.',
  ]
  return `${parts.join('\n\n')}\n`
}

/** What the page about problems says of it. */
function advice(code: string): string[] {
  const { text } = pages.find(({ path }) => path === 'docs/operations/troubleshooting.md')!
  const items = text.split(/\n(?=- |#|\n)/).filter(item => item.startsWith('- ') && item.includes(`errors.md#${code})`))
  if (items.length === 0) return []
  const said = items.map(item => item.replaceAll(/\]\((?:\.\.\/reference\/errors\.md#(\w+)|([^):]+))\)/g, leadFromHere))
  return ['## What to do', said.join('\n')]
}

function leadFromHere(_: string, other: string | undefined, path: string | undefined): string {
  return other === undefined
    ? `](${path!.startsWith('../') ? `../../${path!.slice(3)}` : `../../operations/${path}`})`
    : `](${other}.md)`
}

/** The pages that speak of it. */
function mentions(code: string): string[] {
  const isWritten = ({ path, text }: Page): boolean =>
    /^docs\/(guides|operations|[\w-]+\.md)/.test(path) && text.includes(`\`${code}\``)
  const links = pages.filter(isWritten).map(({ path, text }) => {
    const title = /^# (.*)$/m.exec(text)![1]
    return `- [${title}](${path.replace('docs/', '../../')})`
  })
  return links.length === 0 ? [] : ['## Read more', links.join('\n')]
}

function oneLine(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, ' ').trim()
}

/** Data that prints as the names of its fields, however a message uses it; optional fields are missing. */
function placeholders(optional: readonly string[]): object {
  return new Proxy(
    {},
    { get: (_, field) => (optional.includes(String(field)) ? undefined : placeholder(String(field))) },
  )
}

function placeholder(field: string): object {
  const text = `‹${field}›`
  const self: object = {
    length: 1,
    toString: () => text,
    toJSON: () => text,
    join: () => text,
    slice: () => self,
    map: () => self,
    [inspect.custom]: () => text,
  }
  // A field of a field prints as its own name.
  return new Proxy(self, {
    get: (target, name) => (name in target || typeof name === 'symbol' ? Reflect.get(target, name) : placeholder(name)),
  })
}

const intro = `# Errors

Every error of the store has a stable \`code\` and the data of its message as fields, and says whether the same call can succeed
when it is tried again (\`retryable\`). Branch on the code, with \`isRillflowError(error, 'version_conflict')\` or with
\`error instanceof VersionConflict\`, never on the message: it is for people, and says how to continue. Where a message depends on
the data, one of its forms is shown.

Each error has a page of its own, whose address in the package is \`error.docs\`. They are generated from the
\`errors.ts\` of each folder. For problems in production, see
[troubleshooting](../operations/troubleshooting.md).`
