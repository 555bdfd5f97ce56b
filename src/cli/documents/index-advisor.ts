/** `rillflow documents index-advisor` */
import { baseOf } from '../../documents/collection.ts'
import { type Command, defineCommand } from '../command.ts'
import { duration } from '../output/amount.ts'
import { table } from '../output/table.ts'
import { collectionFor, queryOf, queryOptions } from './collection.ts'

export const indexAdvisorCommand: Command = defineCommand({
  description:
    'Runs the query once and names the index that would serve it, as it is declared in the configuration. Nothing is named where the indexes there are do already.',
  arguments: [{ name: 'collection', summary: 'Its name', names: 'collection' }],
  options: queryOptions,
  examples: [`rillflow documents index-advisor customers --where '{"age":{"$gte":18}}' --order-by name`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const documents = collectionFor(await open(), collection, 'reads')
    await queryOf(documents, options).limit(1000).toArray({ signal })
    const advice = documents.adviseIndexes()
    const { tableName } = baseOf(documents)!
    out.print({ collection, table: tableName, advice }, style =>
      table(
        style,
        advice,
        [
          { title: 'INDEX', of: each => each.index, paint: (_, colour) => colour.cyan },
          { title: 'TABLE', of: () => tableName },
          { title: 'TOOK', of: each => duration(each.averageMs), right: true },
          { title: 'ROWS', of: each => each.maxRows, right: true },
        ],
        `No index is missing for this query on ${tableName}.`,
      ),
    )
  },
})
