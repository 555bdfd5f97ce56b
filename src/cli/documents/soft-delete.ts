/** `rillflow documents soft-delete` */
import { type Command, defineCommand } from '../command.ts'
import { collectionFor } from './collection.ts'

export const softDeleteCommand: Command = defineCommand({
  description: 'It is left out of reads and queries until it is restored, or put.',
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
  ],
  examples: ['rillflow documents soft-delete customers c-1'],
  async run({ out, open, arguments: { collection, id } }) {
    const version = await collectionFor(await open(), collection, 'writes').softDelete(id)
    out.print({ collection, id, version, deleted: true }, () => `Hid ${collection}/${id}, version ${version}.`)
  },
})
