/** The reference of all errors as Markdown, generated from their declarations. */
import { readdirSync, readFileSync } from 'node:fs'
import { inspect } from 'node:util'
import type { RillflowError } from '../../src/core/errors.ts'

const folder = new URL('../../src/', import.meta.url)

export async function errorReference(): Promise<string> {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(name => name.endsWith('/errors.ts'))
  // The general errors first, then those of each folder.
  files.sort((a, b) => Number(b === 'core/errors.ts') - Number(a === 'core/errors.ts') || a.localeCompare(b))
  const parts = [intro]
  for (const file of files) parts.push(...(await partsOf(file)))
  return `${parts.join('\n\n')}\n`
}

async function partsOf(file: string): Promise<string[]> {
  const source = readFileSync(new URL(file, folder), 'utf8')
  const kinds = (await import(new URL(file, folder).href)) as Record<string, Kind>
  const title = file === 'core/errors.ts' ? 'general' : file.replace('/errors.ts', '').replaceAll('/', ': ')
  const found = [...source.matchAll(/^export const (?<name>\w+): ErrorKind<(?<type>.*?)=\s/gms)]
  return [
    `## ${title[0]!.toUpperCase()}${title.slice(1)}`,
    ...found.map(({ groups }) => describe(kinds[groups!.name!]!, groups!.type!)),
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
  return `### ${error.code}\n\n\`${kind.name}\`${note}\n\n> ${error.message.replaceAll(/\s*\n\s*/g, ' ')}`
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
    [inspect.custom]: () => text,
  }
  return self
}

const intro = `# Errors

Every error of the store has a stable \`code\` and the data of its message as fields, and says whether the same call can succeed
when it is tried again (\`retryable\`). Branch on the code, with \`isRillflowError(error, 'version_conflict')\` or with
\`error instanceof VersionConflict\`, never on the message: it is for people, and says how to continue. Where a message depends on
the data, one of its forms is shown.

This page is generated from the \`errors.ts\` of each folder. For problems in production, see
[troubleshooting](../operations/troubleshooting.md).`
