/** `rillflow documents get` */
import { DocumentNotFound } from '../../documents/errors.ts'
import { type Command, defineCommand } from '../command.ts'
import { ago } from '../output/amount.ts'
import { toJson } from '../output/output.ts'
import { fields } from '../output/table.ts'
import { collectionFor } from './collection.ts'

export const getCommand: Command = defineCommand({
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
  ],
  options: { includeDeleted: { kind: 'flag', summary: 'Also one that is soft-deleted' } },
  examples: ['rillflow documents get customers c-1', 'rillflow documents get customers c-1 --json | jq .data'],
  async run({ out, open, arguments: { collection, id }, options: { includeDeleted } }) {
    const document = await collectionFor(await open(), collection, 'reads').get(id, { includeDeleted })
    if (document === undefined) throw new DocumentNotFound({ collection, id })
    out.print(document, style =>
      fields(style, {
        id: document.id,
        version: document.version,
        created: `${document.createdAt.toISOString()} (${ago(document.createdAt, style.now)})`,
        updated: `${document.updatedAt.toISOString()} (${ago(document.updatedAt, style.now)})`,
        'updated by': document.updatedBy,
        deleted: document.deletedAt?.toISOString(),
        data: toJson(document.data, 2),
      }),
    )
  },
})
