/** `rillflow documents query` */
import { type Command, defineCommand } from '../command.ts'
import { ago } from '../output/amount.ts'
import { toJson } from '../output/output.ts'
import { table } from '../output/table.ts'
import { collectionFor, queryOf, queryOptions } from './collection.ts'

export const queryCommand: Command = defineCommand({
  arguments: [{ name: 'collection', summary: 'Its name', names: 'collection' }],
  options: {
    ...queryOptions,
    limit: { kind: 'whole', default: 25, value: 'COUNT', summary: 'How many at most' },
    includeDeleted: { kind: 'flag', summary: 'Also documents that are soft-deleted' },
  },
  examples: [`rillflow documents query customers --where '{"tier":"pro"}' --order-by name`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const query = queryOf(collectionFor(await open(), collection, 'reads'), options).limit(options.limit)
    const documents = await (options.includeDeleted ? query.includeDeleted() : query).toArray({ signal })
    out.print(documents, style =>
      table(
        style,
        documents,
        [
          { title: 'ID', of: each => each.id, paint: (_, colour) => colour.cyan },
          { title: 'VERSION', of: each => each.version, right: true },
          { title: 'UPDATED', of: each => ago(each.updatedAt, style.now), paint: (_, colour) => colour.dim },
          { title: 'DATA', of: each => toJson(each.data), cut: true },
        ],
        'No documents.',
      ),
    )
  },
})
