/** The runner that holds each consumer, as a matrix: a row for each consumer, a column for each runner. */

import { pageUrl } from '../api/place.ts'
import type { AnswerOf } from '../api/routes.ts'
import { shortId } from '../parts/format.ts'
import { Shape } from '../parts/icon.tsx'
import { Panel } from '../parts/parts.tsx'
import { Table } from '../parts/table.tsx'
import { figures } from '../shell/figures.ts'

type Runner = AnswerOf<'GET /runners'>['items'][number]

/** More columns than these are not read at a glance. */
const maxRunners = 8

export function Holders({ runners }: { runners: readonly Runner[] }) {
  const held = new Set(runners.flatMap(each => each.holds))
  const names = [...new Set([...held, ...(figures.value?.consumers ?? []).map(each => each.name)])].sort()
  const alive = runners.filter(each => each.isAlive).slice(0, maxRunners)
  if (names.length === 0 || alive.length === 0) return null
  return (
    <Panel title="Holders" sub="the runner that applies events to each consumer now">
      <Table
        label="Holders"
        rows={names}
        keyOf={name => name}
        columns={[
          {
            head: 'Consumer',
            class: 'w-300',
            cellClass: 'medium',
            cell: name => <a href={pageUrl(`/projections/${encodeURIComponent(name.split('/')[0]!)}`)}>{name}</a>,
          },
          ...alive.map(runner => ({
            head: runner.name ?? shortId(runner.id),
            cell: (name: string) =>
              runner.holds.includes(name) ? (
                <span class="state tone-good">
                  <Shape name="done" />
                  holds it
                </span>
              ) : (
                <span class="faint">–</span>
              ),
          })),
        ]}
      />
    </Panel>
  )
}
