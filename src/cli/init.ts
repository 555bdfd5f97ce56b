/** `rillflow init`: a configuration to begin with. It asks nothing and opens nothing. */
import { existsSync } from 'node:fs'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { type Command, defineCommand } from './command.ts'
import { configNames, findJiti, installJiti, needsJiti } from './configuration.ts'
import { WrongUsage } from './usage.ts'

export const initCommand: Command = defineCommand({
  description:
    'TypeScript if there is a tsconfig.json here, JavaScript otherwise. The folder of the embedded store is added to .gitignore. Nothing that is there is overwritten.',
  options: {
    language: { kind: 'text', value: 'LANGUAGE', choices: ['ts', 'js'], summary: 'Rather this one' },
  },
  examples: ['rillflow init', 'rillflow init --language js'],
  async run({ out, options: { language } }) {
    const there = configNames.find(name => existsSync(name))
    if (there !== undefined)
      throw new WrongUsage({
        reason: `There is a configuration already: ${there}`,
        hint: `edit ${there}, or move it away`,
      })
    const isTypeScript = language === undefined ? existsSync('tsconfig.json') : language === 'ts'
    const file = isTypeScript ? 'rillflow.config.ts' : 'rillflow.config.mjs'
    await writeFile(file, template, { flag: 'wx' })
    const isIgnored = await ignoreFolder()
    out.print({ config: file, gitignore: isIgnored }, style => {
      const { green, dim } = style.colour
      return [
        `${green('Wrote')} ${file}${isIgnored ? ', and .rillflow/ to .gitignore' : ''}.`,
        '',
        'Next:',
        ...(needsJiti(file) && findJiti(resolve(file)) === undefined
          ? [`  ${installJiti.padEnd(55)}  ${dim(`lets Node ${process.versions.node} read TypeScript`)}`]
          : []),
        `  rillflow schema sync                                     ${dim('makes the store, embedded in ./.rillflow')}`,
        `  rillflow events append order-1 OrderPlaced '{"total":99}'`,
        `  rillflow run                                             ${dim('runs what the configuration has')}`,
        `  rillflow status                                          ${dim('embedded, once it has ended: one process at a time')}`,
        '',
        `On a server: ${dim('export DATABASE_URL=postgres://user:password@host/database')}`,
      ].join('\n')
    })
  },
})

const packageName = 'rillflow'

const template = `import { defineConfig } from '${packageName}'

export default defineConfig({
  // url: process.env.DATABASE_URL,        without it: the embedded store in ./.rillflow
  // schema: 'rillflow',

  // Read models that follow the log.
  projections: [],

  // Collections: defineCollection('customers', { indexes: ['email'] })
  collections: [],

  // Handlers of workflows, schedules, and whatever else is registered in a store.
  register(store) {
    // 'beginning': also for what was there before it. The default is 'now': what comes after its first run.
    store.workflows.on('OrderPlaced', { name: 'greet', startFrom: 'beginning' }, async event => {
      console.log('an order was placed:', event.stream, event.data)
    })
  },
})
`

async function ignoreFolder(): Promise<boolean> {
  const text = existsSync('.gitignore') ? await readFile('.gitignore', 'utf8') : undefined
  if (text === undefined && !existsSync('.git')) return false
  if (text?.split('\n').some(line => /^\/?\.rillflow\/?$/.test(line.trim()))) return false
  await appendFile('.gitignore', `${text === undefined || text === '' || text.endsWith('\n') ? '' : '\n'}.rillflow/\n`)
  return true
}
