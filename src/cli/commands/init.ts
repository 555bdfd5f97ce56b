/** `rillflow init`: writes a first configuration and prints the next steps. It asks nothing and opens no store. */
import { existsSync } from 'node:fs'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { type Command, defineCommand } from '../command.ts'
import { configNames, findJiti, installJiti, needsJiti } from '../config.ts'
import { WrongUsage } from '../report-error.ts'

export const init: Command = defineCommand({
  description:
    'Writes TypeScript if the folder has a tsconfig.json, JavaScript otherwise. It also adds the folder of the embedded store to .gitignore. It never overwrites a file.',
  options: {
    language: {
      kind: 'text',
      value: 'LANGUAGE',
      choices: ['ts', 'js'],
      summary: 'The language of the configuration',
    },
  },
  examples: ['rillflow init', 'rillflow init --language js'],
  async run({ out, options: { language } }) {
    const existing = configNames.find(name => existsSync(name))
    if (existing !== undefined)
      throw new WrongUsage({
        reason: `There is a configuration already: ${existing}`,
        hint: `edit ${existing}, or move it to another folder`,
      })
    const isTypeScript = language === undefined ? existsSync('tsconfig.json') : language === 'ts'
    const file = isTypeScript ? 'rillflow.config.ts' : 'rillflow.config.mjs'
    await writeFile(file, template, { flag: 'wx' })
    const isIgnored = await ignoreFolder()
    out.print({ config: file, gitignore: isIgnored }, ({ colour: { green, dim } }) => {
      const needsInstall = needsJiti(file) && findJiti(resolve(file)) === undefined
      const step = (command: string, purpose: string): string => `  ${command.padEnd(55)}  ${dim(purpose)}`
      return [
        `${green('Wrote')} ${file}${isIgnored ? ', and added .rillflow/ to .gitignore' : ''}.`,
        '',
        'Next:',
        ...(needsInstall ? [step(installJiti, `Node ${process.versions.node} needs it to read TypeScript`)] : []),
        step('rillflow schema sync', 'creates the store, embedded in ./.rillflow'),
        `  rillflow events append order-1 OrderPlaced '{"total":99}'`,
        step('rillflow run', 'runs everything in the configuration'),
        step('rillflow status', 'an embedded store: after `run` has stopped'),
        '',
        `To use a server: ${dim('export DATABASE_URL=postgres://user:password@host/database')}`,
      ].join('\n')
    })
  },
})

const packageName = 'rillflow'

const template = `import { defineConfig, defineHandler } from '${packageName}'

const greet = defineHandler('greet', {
  on: 'OrderPlaced',
  // 'start': also the events from before its first run. The default is 'now': only the events after it.
  from: 'start',
  async run(event) {
    console.log('an order was placed:', event.stream, event.data)
  },
})

export default defineConfig({
  // A server. If the variable is not set, the embedded store in the folder: without a folder, that is an error.
  // url: process.env.DATABASE_URL,
  folder: './.rillflow',
  // schema: 'rillflow',

  // Read models that follow the log.
  projections: [],

  // Collections: defineCollection('customers', { indexes: ['email'] })
  collections: [],

  // Code that runs because of events.
  handlers: [greet],
})
`

async function ignoreFolder(): Promise<boolean> {
  const text = existsSync('.gitignore') ? await readFile('.gitignore', 'utf8') : undefined
  if (text === undefined && !existsSync('.git')) return false
  if (text?.split('\n').some(line => /^\/?\.rillflow\/?$/.test(line.trim()))) return false
  await appendFile('.gitignore', `${text === undefined || text === '' || text.endsWith('\n') ? '' : '\n'}.rillflow/\n`)
  return true
}
