/** `rillflow upcasters path` */
import { type Command, defineCommand } from '../command.ts'
import { upcastersOf } from './configured.ts'

export const pathCommand: Command = defineCommand({
  arguments: [
    { name: 'type', summary: 'The type as it is stored' },
    { name: 'version', summary: 'The version of its shape; 1 without it', kind: 'whole', optional: true },
  ],
  examples: ['rillflow upcasters path OrderCreated 1'],
  async run({ out, config, arguments: { type, version = 1 } }) {
    const path = upcastersOf((await config())?.config).path(type, version)
    out.print(path, style => path.map(each => `${each.type} v${each.schemaVersion}`).join(style.colour.dim(' -> ')))
  },
})
