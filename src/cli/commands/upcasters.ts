/** `rillflow upcasters`: the steps that give old events their new shape. These commands read only the configuration. */
import { upcasters as combine, type Upcasters } from '../../events/read/upcast.ts'
import { type Commands, defineCommand, defineVerbs, type Invocation } from '../command.ts'
import { printPage } from '../list-command.ts'
import type { Column } from '../output/table.ts'

const list = defineCommand({
  examples: ['rillflow upcasters list'],
  async run({ out, config }) {
    const steps = (await loadUpcasters({ config })).describe()
    const columns: Column<(typeof steps)[number]>[] = [
      { title: 'TYPE', of: step => step.type, paint: (_, colour) => colour.cyan },
      { title: 'FROM', of: step => (step.from === '*' ? 'any' : step.from), right: true },
      { title: 'TO TYPE', of: step => step.toType },
      { title: 'TO', of: step => step.to, right: true },
    ]
    printPage(out, { items: steps, next: undefined }, () => columns, 'The configuration has no upcasters.')
  },
})

const path = defineCommand({
  arguments: [
    { name: 'type', summary: 'The event type as it is stored' },
    { name: 'version', summary: 'The schema version as it is stored, by default 1', kind: 'whole', optional: true },
  ],
  examples: ['rillflow upcasters path OrderCreated 1'],
  async run({ out, config, arguments: { type, version = 1 } }) {
    const shapes = (await loadUpcasters({ config })).path(type, version)
    out.print(shapes, style =>
      shapes.map(shape => `${shape.type} v${shape.schemaVersion}`).join(style.colour.dim(' -> ')),
    )
  },
})

export const upcasters: Commands = defineVerbs({
  list: ['Show all upcasters of the configuration', list],
  path: ['Show the steps from the stored shape of an event to its present one', path],
})

/** The upcasters of the configuration, combined and checked as the store does it. */
async function loadUpcasters({ config }: Pick<Invocation, 'config'>): Promise<Upcasters> {
  return combine((await config())?.config.upcasters ?? [])
}
