/** Every line of a workflow's activity: the equal of graph and timeline. */
import { duration, milliseconds, time } from '../../parts/format.ts'
import { Panel, State } from '../../parts/parts.tsx'
import { Empty } from '../../parts/reading.tsx'
import { Table } from '../../parts/table.tsx'
import type { Address } from '../../shell/where.ts'
import { executionLook } from '../workflow-look.tsx'
import { type Line, stateAfter } from './replay.ts'

export function ActivityList({
  lines,
  chosen,
  address,
}: {
  lines: readonly Line[]
  chosen: string | undefined
  address: Address
}) {
  return (
    <Panel title="Activity" sub="every change of an execution, in its order">
      {lines.length === 0 ? (
        <Empty title="Nothing has happened yet" />
      ) : (
        <Table
          label="Activity"
          class="stackable"
          rows={lines}
          keyOf={line => String(line.position)}
          chosen={
            lines.find(line => line.executionId === chosen) === undefined
              ? undefined
              : String(lines.findLast(line => line.executionId === chosen)?.position)
          }
          onOpen={line => address.push({ open: line.executionId })}
          columns={[
            {
              head: 'Time',
              class: 'w-112',
              cellClass: 'mono dim',
              cell: line => `${time(line.at)}${milliseconds(line.at)}`,
            },
            {
              head: 'Handler',
              class: 'w-148',
              cellClass: 'medium c-name',
              cell: line => <a href={address.with({ open: line.executionId })}>{line.handler}</a>,
            },
            {
              head: 'What',
              class: 'w-180',
              cellClass: 'c-now',
              cell: line => (
                <State
                  {...executionLook(stateAfter(line))}
                  word={`${line.kind}${line.outcome === undefined ? '' : `, ${line.outcome}`}`}
                />
              ),
            },
            {
              head: 'Event',
              class: 'w-180',
              cell: line => (
                <>
                  {line.eventType} <span class="mono faint">#{line.eventPosition}</span>
                </>
              ),
            },
            {
              head: 'Attempt',
              class: 'w-72 num',
              cellClass: 'dim',
              cell: line => (line.attempt === 0 ? '' : line.attempt),
            },
            {
              head: 'Queued',
              class: 'w-80 num',
              cellClass: 'dim',
              cell: line => (line.queuedMs === undefined ? '' : duration(line.queuedMs)),
            },
            {
              head: 'Ran',
              class: 'w-80 num',
              cellClass: 'dim',
              cell: line => (line.runningMs === undefined ? '' : duration(line.runningMs)),
            },
            {
              head: 'Error',
              cellClass: 'c-msg',
              cell: line => line.error?.message ?? '',
              title: line => line.error?.message,
            },
          ]}
        />
      )}
    </Panel>
  )
}
