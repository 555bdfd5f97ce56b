/** `rillflow documents restore` */
import { type Command, defineCommand } from '../command.ts'
import { collectionFor } from './collection.ts'

export const restoreCommand: Command = defineCommand({
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
  ],
  examples: ['rillflow documents restore customers c-1'],
  async run({ out, open, arguments: { collection, id } }) {
    const version = await collectionFor(await open(), collection, 'writes').restore(id)
    out.print({ collection, id, version, deleted: false }, () => `Restored ${collection}/${id}, version ${version}.`)
  },
})
