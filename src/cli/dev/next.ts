/** What to try next, as lines that can be copied and work where they are said to. */
import { basename, relative } from 'node:path'
import type { Opened } from '../command.ts'
import type { Style } from '../output/output.ts'
import type { Parts } from '../run/parts.ts'

export interface Beginning {
  readonly opened: Opened
  readonly parts: Parts
  readonly url: string
  readonly isShop: boolean
}

export function beginning(style: Style, { opened, parts, url, isShop }: Beginning): string {
  const { bold, cyan, dim } = style.colour
  const { store, where, isInMemory } = opened
  const what = parts.all.length === 0 ? 'nothing of a configuration' : parts.all.join(', ')
  return [
    '',
    `${bold(isShop ? 'The shop' : 'Your store')} is open: ${where}, schema ${store.schema.name}. Ctrl-C ends it.`,
    dim(`Running ${what}.`),
    '',
    'In a second terminal:',
    `  ${cyan(`curl -s ${url}/health/ready`)}`,
    `  ${cyan(`curl -s ${url}/metrics | grep rillflow_consumer_lag`)}`,
    ...(store.engine === 'postgres'
      ? commandsOf(style, opened)
      : [dim(isInMemory ? 'Other commands cannot reach a store in memory.' : embedded)]),
    ...(isShop ? ['', `A configuration of your own: ${cyan(`${program()} init`)}`] : []),
    '',
  ].join('\n')
}

const embedded = 'Other commands after Ctrl-C, as one process has an embedded store; at once with --url of a server.'

/** Of an embedded store, which one process has at a time. */
export function afterwards(style: Style, opened: Opened): string {
  if (opened.isInMemory) return 'Ended. Nothing is kept of a store in memory.'
  if (opened.store.engine === 'postgres') return 'Ended. Nothing is lost: the next start goes on here.'
  return [
    'Ended. Nothing is lost: the next start goes on here. The store is free now for other commands:',
    ...commandsOf(style, opened),
  ].join('\n')
}

function commandsOf({ colour }: Style, { store }: Opened): string[] {
  const { name } = store.schema
  const flags = name === 'rillflow' ? '' : ` --schema ${name}`
  return ['status', 'events tail', 'workflows list', 'dead-letters list'].map(
    each => `  ${colour.cyan(`${program()} ${each}${flags}`)}`,
  )
}

/** As it was called: from a clone the file itself, elsewhere by the name of the package. */
function program(): string {
  const [, script = ''] = process.argv
  return basename(script) === 'rillflow' ? 'npx rillflow' : `node ${relative('', script)}`
}
