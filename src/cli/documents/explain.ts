/** `rillflow documents explain` */
import { type Command, defineCommand } from '../command.ts'
import { collectionFor, queryOf, queryOptions } from './collection.ts'

export const explainCommand: Command = defineCommand({
  arguments: [{ name: 'collection', summary: 'Its name', names: 'collection' }],
  options: { ...queryOptions, analyze: { kind: 'flag', summary: 'Run it, and show the times' } },
  examples: [`rillflow documents explain customers --where '{"age":{"$gte":18}}' --analyze`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const query = queryOf(collectionFor(await open(), collection, 'reads'), options)
    const plan = await query.explain({ analyze: options.analyze, signal })
    out.print({ collection, plan: plan.split('\n') }, () => plan)
  },
})
