/** The open joins of a workflow: a slot for each member, arrived, failed or still missing. */
import { useReading } from '../../api/reading.ts'
import type { AnswerOf } from '../../api/routes.ts'
import { quantity, relative } from '../../parts/format.ts'
import { Panel, State } from '../../parts/parts.tsx'
import { Table } from '../../parts/table.tsx'

type Join = AnswerOf<'GET /workflows/:id/joins'>['items'][number]

const maxSlots = 60

export function Joins({ id, isOpen }: { id: string; isOpen: boolean }) {
  const joins = useReading('GET /workflows/:id/joins', { parameters: { id }, everyMs: 5000, when: isOpen })
  const items = isOpen ? (joins.data?.items ?? []) : []
  if (items.length === 0) return null
  return (
    <Panel title="Joins" sub="handlers that run once for all members of a batch">
      <Table
        label="Joins"
        class="stackable"
        rows={items}
        keyOf={each => each.id}
        columns={[
          { head: 'Handler', class: 'w-180', cellClass: 'medium c-name', cell: each => each.handler },
          { head: 'Members', cellClass: 'c-msg', cell: each => <Slots join={each} /> },
          {
            head: 'Arrived',
            class: 'w-112 num',
            cell: each => `${quantity(each.arrived)} of ${quantity(each.size)}`,
          },
          {
            head: 'State',
            class: 'w-148',
            cellClass: 'c-now',
            cell: each =>
              each.failed > 0 ? (
                <State shape="failed" tone="bad" word={`${quantity(each.failed)} failed`} />
              ) : (
                <State shape="waiting" tone="wait" word={each.state === 'open' ? 'Waits' : each.state} />
              ),
          },
          {
            head: 'Until',
            class: 'w-112',
            cellClass: 'dim',
            cell: each => (each.deadlineAt === undefined ? 'all are there' : relative(each.deadlineAt)),
          },
        ]}
      />
    </Panel>
  )
}

function Slots({ join: { size, entries, handler } }: { join: Join }) {
  const outcomes = new Map(entries.map(each => [each.index, each.outcome]))
  const shown = Math.min(size, maxSlots)
  return (
    <svg
      class="slots"
      viewBox={`0 0 ${shown * 9} 10`}
      width={shown * 9}
      height="10"
      role="img"
      aria-label={`${outcomes.size} of the ${size} members of ${handler}`}
    >
      {Array.from({ length: shown }, (_, index) => {
        const outcome = outcomes.get(index)
        const look = outcome === undefined ? 'miss' : /fail/i.test(outcome) ? 'fail' : 'done'
        return <rect key={index} class={`slot ${look}`} x={index * 9 + 0.5} y="0.5" width="7" height="9" rx="1.5" />
      })}
    </svg>
  )
}
