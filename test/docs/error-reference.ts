/** The reference of all errors as Markdown, generated from their declarations. */
import { readdirSync, readFileSync } from 'node:fs'
import type { RillflowError } from '../../src/core/errors.ts'

const folder = new URL('../../src/core/', import.meta.url)

export async function errorReference(): Promise<string> {
  const files = readdirSync(folder).filter(name => name.endsWith('errors.ts'))
  // The general errors first, then those of each part.
  files.sort((a, b) => Number(b === 'errors.ts') - Number(a === 'errors.ts') || a.localeCompare(b))
  const parts = [intro]
  for (const file of files) parts.push(...(await partsOf(file)))
  return `${parts.join('\n\n')}\n`
}

async function partsOf(file: string): Promise<string[]> {
  const source = readFileSync(new URL(file, folder), 'utf8')
  const kinds = (await import(new URL(file, folder).href)) as Record<string, Kind>
  const title = /^\/\*\* The errors of ([^:.]*)/.exec(source)?.[1]
  const heads = title === undefined ? [] : [`## ${title[0]!.toUpperCase()}${title.slice(1)}`]
  const found = source.matchAll(/^\/\/ ── (?<section>.+?) ─+$|^export const (?<name>\w+): ErrorKind<(?<type>.*?)=\s/gms)
  return [
    ...heads,
    ...[...found].map(({ groups }) =>
      groups!.section === undefined ? describe(kinds[groups!.name!]!, groups!.type!) : `## ${groups!.section}`,
    ),
  ]
}

interface Kind {
  new (data: object): RillflowError
  readonly name: string
}

function describe(kind: Kind, type: string): string {
  const optional = [...type.matchAll(/(\w+)\?:/g)].map(([, field]) => field!)
  const error = new kind(placeholders(optional))
  const note = error.retryable ? ' · can be tried again' : ''
  return `### ${error.code}\n\n\`${kind.name}\`${note}\n\n> ${error.message}`
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
  const self = {
    length: 1,
    toString: () => text,
    toJSON: () => text,
    join: () => text,
    slice: () => self,
    map: () => self,
  }
  return self
}

const intro = `# Errors

What the store throws has a stable \`code\`, the data that its message names as fields, and says whether the same call can succeed
when it is simply tried again (\`retryable\`). Branch on the code, with \`isRillflowError(error, 'version_conflict')\` or with
\`error instanceof VersionConflict\`, never on the message: it is for people, and says what to try. Where a message depends on
the data, one of its forms is shown.

This page is made from \`src/core/*errors.ts\`. What to do when something is wrong in production:
[troubleshooting](../operations/troubleshooting.md).`
