/** `rillflow subscriptions groups` */
import { type Command, defineCommand } from '../command.ts'
import { lagOf, paintState } from '../output/consumer.ts'
import { table } from '../output/table.ts'
import { groupStateOf } from './group.ts'

export const groupsCommand: Command = defineCommand({
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  examples: ['rillflow subscriptions groups mailer'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const groups = await store.subscriptions.groups(name)
    out.print(groups, style =>
      table(
        style,
        groups,
        [
          { title: 'GROUP', of: each => each.group, paint: (_, colour) => colour.cyan },
          { title: 'STATE', of: groupStateOf, paint: (each, colour) => paintState(groupStateOf(each), colour) },
          { title: 'CHECKPOINT', of: each => each.checkpoint, right: true },
          { title: 'LAG', of: lagOf, right: true },
          { title: 'MAX IN FLIGHT', of: each => each.maxInFlight, right: true },
          { title: 'PARTITIONS', of: each => each.partitions.length, right: true },
          { title: 'DEAD LETTERS', of: each => each.deadLetters, right: true },
        ],
        'No groups.',
      ),
    )
  },
})
