/** `rillflow documents put` */
import { type Command, defineCommand } from '../command.ts'
import { WrongUsage } from '../usage.ts'
import { collectionFor } from './collection.ts'

export const putCommand: Command = defineCommand({
  description:
    'A soft-deleted document is shown again. The collection is checked and indexed as the configuration declares it.',
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
    { name: 'data', summary: 'A JSON object', kind: 'json' },
  ],
  options: {
    expected: { kind: 'whole', value: 'VERSION', summary: 'Only if the document is at this version' },
    user: { kind: 'text', value: 'USER', summary: 'Who does it' },
  },
  examples: [`rillflow documents put customers c-1 '{"name":"Ada"}'`],
  async run({ out, open, arguments: { collection, id, data }, options: { expected, user } }) {
    if (typeof data !== 'object' || data === null || Array.isArray(data))
      throw new WrongUsage({ reason: 'DATA must be a JSON object' })
    const documents = collectionFor(await open({ creates: true }), collection, 'writes')
    const version = await documents.put(id, data as Record<string, unknown>, { expected, userId: user })
    out.print({ collection, id, version }, () => `Put ${collection}/${id}, version ${version}.`)
  },
})
