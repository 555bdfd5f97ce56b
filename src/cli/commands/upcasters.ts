/** Commands about upcasters. They look at the configuration alone; no store is opened. */
import type { Config } from '../../config.ts'
import { upcasters as collectUpcasters, type Upcasters } from '../../events/upcast.ts'
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { table } from '../output/table.ts'

const list = defineCommand({
  examples: ['rillflow upcasters list'],
  async run({ out, config }) {
    const steps = upcastersOf((await config())?.config).describe()
    out.print(steps, style =>
      table(
        style,
        steps,
        [
          { title: 'TYPE', of: each => each.type, paint: (_, colour) => colour.cyan },
          { title: 'FROM', of: each => (each.from === '*' ? 'any' : each.from), right: true },
          { title: 'TO TYPE', of: each => each.toType },
          { title: 'TO', of: each => each.to, right: true },
        ],
        'No upcasters in the configuration.',
      ),
    )
  },
})

const path = defineCommand({
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

// The upcasters of the configuration, put together as the store does it.

export function upcastersOf(config: Config | undefined): Upcasters {
  return collectUpcasters(config?.upcasters ?? [])
}

export const upcasters: Commands = defineVerbs({
  list: ['All steps of the configuration', list],
  path: ['The shapes that an event goes through', path],
})
