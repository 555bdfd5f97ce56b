/** `rillflow schema sync` */
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'

export const syncCommand: Command = defineCommand({
  description:
    'Runs what `schema plan` shows, all or nothing. An embedded store that is not there is made. Many processes may sync at once.',
  examples: ['rillflow schema sync', 'rillflow schema sync --url postgres://localhost/shop --json'],
  async run({ out, open, signal }) {
    const { store } = await open({ migrate: 'manual', creates: true })
    const bar = out.progress('Syncing')
    const { steps, problems } = await store.schema
      .sync({ signal, onProgress: ({ done, total }) => bar.update(done, total, 'step') })
      .finally(() => bar.end())
    const { name } = store.schema
    out.print({ schema: name, steps, problems }, style => {
      const told =
        steps.length === 0
          ? `Nothing to do: schema ${name} is up to date.`
          : `${style.colour.green('Synced')} schema ${name}: ${count(steps.length, 'step')}.`
      return [
        told,
        ...problems.map(each => `${style.colour.yellow('!')} ${each.object} ${each.problem}: ${each.fix}`),
      ].join('\n')
    })
  },
})
