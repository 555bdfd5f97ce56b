/** `rillflow projections rebuild` */
import { type Command, defineCommand } from '../command.ts'
import { count, duration } from '../output/amount.ts'
import { openWithProjections } from './registered.ts'

export const rebuildCommand: Command = defineCommand({
  description:
    'The old read model serves until the new one is switched in. One that was cut off goes on where it was when it is called again.',
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  options: {
    restart: { kind: 'flag', summary: 'Throw away what a rebuild that was cut off has done' },
    switchMs: {
      kind: 'whole',
      value: 'MS',
      default: 600_000,
      summary: 'How long to try to switch while others lock the tables',
    },
  },
  examples: ['rillflow projections rebuild order-totals'],
  async run({ out, arguments: { name }, options, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const bar = out.progress(`Rebuilding ${name}`)
    const { restart, switchMs } = options
    const rebuilt = await store.projections
      .rebuild(name, {
        ...{ restart, switchMs, signal },
        onProgress: ({ position, head }) => bar.update(Number(position), Number(head), 'position'),
      })
      .finally(() => bar.end())
    out.print({ projection: name, ...rebuilt, position: rebuilt.position }, style => {
      const { events, position, durationMs } = rebuilt
      const told = `${count(events, 'event')} in ${duration(durationMs)}, up to position ${position}`
      return `${style.colour.green('Rebuilt')} ${name}: ${told}.`
    })
  },
})
