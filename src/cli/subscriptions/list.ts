/** `rillflow subscriptions list` */
import { type Command, defineCommand } from '../command.ts'
import { toJson } from '../output/output.ts'
import { table } from '../output/table.ts'

export const listCommand: Command = defineCommand({
  examples: ['rillflow subscriptions list'],
  async run({ out, open }) {
    const { store } = await open()
    const subscriptions = await store.subscriptions.list()
    out.print(subscriptions, style =>
      table(
        style,
        subscriptions,
        [
          { title: 'SUBSCRIPTION', of: each => each.name, paint: (_, colour) => colour.cyan },
          { title: 'GROUPS', of: each => each.groups.join(', '), cut: true },
          {
            title: 'WANTS',
            of: each => (Object.keys(each.filter).length === 0 ? 'all events' : toJson(each.filter)),
            cut: true,
          },
        ],
        'No subscriptions.',
      ),
    )
  },
})
