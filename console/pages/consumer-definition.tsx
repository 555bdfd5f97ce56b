/** The definition of a consumer, as the process that serves the console knows it. */
import type { AnswerOf } from '../api/routes.ts'
import { duration, quantity } from '../parts/format.ts'
import { Facts, Panel } from '../parts/parts.tsx'

type Described = AnswerOf<'GET /consumers/:name'>

export function DefinitionPanel({ consumer: { definition, tables, rebuild } }: { consumer: Described }) {
  if (definition === undefined) return null
  const { types, categories, batchSize, retries, backoff, onFailure, leaseMs } = definition
  return (
    <Panel title="Definition">
      <div class="pad">
        <Facts
          facts={[
            ['Types', types?.join(', ') ?? 'all', 'wrap'],
            categories === undefined ? undefined : ['Categories', categories.join(', '), 'wrap'],
            tables.length === 0 ? undefined : ['Tables', tables.join(', '), 'mono'],
            ['Batch', `${quantity(batchSize)} events`],
            ['Lease', duration(leaseMs)],
            ['Retries', retries === 0 ? 'none' : `${retries}, the first after ${duration(backoff.baseMs)}`],
            ['Then', ends[onFailure]],
            rebuild === undefined
              ? undefined
              : ['Rebuild', `${rebuild.isRunning ? 'running' : 'interrupted'} at #${rebuild.position}`],
          ]}
        />
      </div>
    </Panel>
  )
}

const ends: Record<NonNullable<Described['definition']>['onFailure'], string> = {
  ...{ deadLetter: 'a dead letter', skip: 'skips the event', stop: 'stops', function: 'its code decides' },
  park: 'a dead letter that holds back its stream',
}
