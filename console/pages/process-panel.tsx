/** The process that serves this page: its memory, its connections, and what it has counted since its store was opened. */
import { useReading } from '../api/reading.ts'
import { bytes, duration, quantity } from '../parts/format.ts'
import { Facts, Panel } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'

const shownCounters: readonly (readonly [name: string, label: string])[] = [
  ['events_appended_total', 'Events appended'],
  ['event_conflicts_total', 'Conflicts'],
  ['events_read_total', 'Events read'],
  ['consumer_events_total', 'Applied by consumers'],
  ['attempts_total', 'Attempts of handlers'],
  ['leases_lost_total', 'Leases lost'],
  ['slow_statements_total', 'Slow statements'],
]

export function ProcessPanel() {
  const process = useReading('GET /process', { everyMs: 5000 })
  return (
    <Panel title="This process" sub="the one that serves this page, since it opened the store">
      <Show of={process} rows={3}>
        {({ pid, host, node, uptimeSeconds, memoryBytes, connections, counters }) => (
          <div class="pad two">
            <Facts
              facts={[
                ['Process', `${pid} on ${host}`, 'mono'],
                ['Node', node],
                ['Up for', duration(uptimeSeconds * 1000)],
                ['Memory', bytes(memoryBytes)],
                [
                  'Connections',
                  Object.entries(connections)
                    .map(([state, count]) => `${count} ${state}`)
                    .join(', '),
                  'wrap',
                ],
              ]}
            />
            <Facts facts={shownCounters.map(([name, label]) => [label, quantity(counters[name] ?? 0)])} />
          </div>
        )}
      </Show>
    </Panel>
  )
}
