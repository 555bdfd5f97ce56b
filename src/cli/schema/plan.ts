/** `rillflow schema plan` */
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { table } from '../output/table.ts'

export const planCommand: Command = defineCommand({
  description: 'Nothing is changed. What no sync will mend is listed too.',
  options: { sql: { kind: 'flag', summary: 'The statements themselves' } },
  examples: ['rillflow schema plan', 'rillflow schema plan --sql > sync.sql'],
  async run({ out, open, options }) {
    const { store } = await open({ migrate: 'manual' })
    const { steps, problems } = await store.schema.plan()
    const value = { schema: store.schema.name, steps, problems }
    if (options.sql) {
      out.print(value, () => steps.map(step => `${step.sql.trim()};`).join('\n\n'))
      return
    }
    out.print(value, style => {
      const shown = [
        table(
          style,
          steps,
          [
            { title: 'STEP', of: step => step.object },
            { title: 'KIND', of: step => step.kind, paint: (_, colour) => colour.dim },
            { title: 'REASON', of: step => step.reason, cut: true },
          ],
          `Nothing to do: schema ${store.schema.name} is up to date.`,
        ),
        ...problems.map(each => `${style.colour.yellow('!')} ${each.object} ${each.problem}: ${each.fix}`),
      ]
      if (steps.length > 0) shown.push('', `${count(steps.length, 'step')}. Run them with: rillflow schema sync`)
      return shown.join('\n')
    })
  },
})
