/** Health: what the doctor finds, with the way to mend it; the schema; what retention would delete. */
import { useState } from 'preact/hooks'
import { refusedFor } from '../api/api.ts'
import { useReading } from '../api/reading.ts'
import { Code, Copy } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { plural } from '../parts/format.ts'
import { Shape } from '../parts/icon.tsx'
import { Button, Head, Panel, State } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { act } from '../shell/act.ts'
import { useWhere } from '../shell/where.ts'
import { RunningOperations } from './operation-lines.tsx'

export function HealthPage() {
  useWhere({ label: 'Health' })
  const doctor = useReading('GET /health/doctor')
  const found = doctor.data?.findings.filter(each => each.level !== 'ok') ?? []
  const errors = found.filter(each => each.level === 'error').length
  const title =
    doctor.data === undefined
      ? 'Health'
      : found.length === 0
        ? 'The store is healthy'
        : errors > 0
          ? `${plural(errors, 'problem')} to mend`
          : `${plural(found.length, 'warning')}`
  return (
    <div class="page">
      <Head title={title} sub="what the doctor finds now, and how to mend it">
        <Button icon="retry" busy={doctor.isLoading} onClick={doctor.reload}>
          Look again
        </Button>
      </Head>
      <RunningOperations />
      <div class="side">
        <Findings of={doctor} />
        <div class="stack">
          <SchemaPanel />
          <UpkeepPanel />
        </div>
      </div>
      <Cost of={[doctor]} />
    </div>
  )
}

function Findings({ of }: { of: ReturnType<typeof useReading<'GET /health/doctor'>> }) {
  return (
    <Panel title="Findings">
      <Show of={of} rows={10}>
        {({ findings }) => {
          const order = { error: 0, warning: 1, ok: 2 }
          return (
            <ul class="why calm">
              {[...findings]
                .sort((a, b) => order[a.level] - order[b.level])
                .map(each => (
                  <li key={each.check + each.message} class={each.level === 'ok' ? '' : 'block'}>
                    <Shape
                      name={each.level === 'ok' ? 'done' : each.level === 'error' ? 'failed' : 'behind'}
                      tone={each.level === 'ok' ? 'tone-good' : each.level === 'error' ? 'tone-bad' : 'tone-warn'}
                    />
                    <span class="what">
                      <b>{each.check}</b>
                    </span>
                    <span
                      class={`word ${each.level === 'ok' ? 'tone-good' : each.level === 'error' ? 'tone-bad' : 'tone-warn'}`}
                    >
                      {each.level === 'ok' ? 'Fine' : each.level === 'error' ? 'Problem' : 'Warning'}
                    </span>
                    <p class="because">{each.message}</p>
                    {each.fix !== undefined && (
                      <div class="mend">
                        <p class="fix">{each.fix}</p>
                        <Copy text={each.fix} label="the fix" />
                      </div>
                    )}
                  </li>
                ))}
            </ul>
          )
        }}
      </Show>
    </Panel>
  )
}

function SchemaPanel() {
  const schema = useReading('GET /schema')
  const sync = async (): Promise<void> => {
    const answer = await ask({
      title: 'Bring the schema up to date?',
      body: `${plural(schema.data?.pending.length ?? 0, 'object')} will be made. Take a backup first where data matters.`,
      verb: 'Sync the schema',
      name: schema.data?.schema,
      isDanger: true,
      command: 'rillflow schema sync',
    })
    if (answer !== undefined)
      await act('POST /schema/sync', {
        body: { confirm: schema.data?.schema },
        done: 'The sync has begun.',
        after: schema.reload,
      })
  }
  return (
    <Panel title="Schema" sub={schema.data?.schema}>
      <Show of={schema} rows={3}>
        {({ status, pending, problems }) => (
          <div class="pad stack-2">
            {status !== 'current' && <SyncPlan />}
            {status === 'current' ? (
              <State shape="done" tone="good" word="Up to date" />
            ) : (
              <State shape="behind" tone="warn" word={status === 'missing' ? 'Missing' : 'Outdated'} />
            )}
            {pending.length > 0 && (
              <p class="dim">
                A sync would make {pending.slice(0, 8).join(', ')}
                {pending.length > 8 ? ' …' : ''}.
              </p>
            )}
            {problems.map(each => (
              <p key={each.object + each.problem}>
                <b class="medium">{each.object}</b> <span class="dim">{each.problem}</span>
              </p>
            ))}
            <div class="actions">
              <Button
                small
                refused={pending.length === 0 ? 'nothing is missing' : refusedFor('admin')}
                onClick={() => void sync()}
              >
                Sync…
              </Button>
            </div>
          </div>
        )}
      </Show>
    </Panel>
  )
}

/** The steps of a sync as SQL, when it is asked for. */
function SyncPlan() {
  const [isOpen, setOpen] = useState(false)
  const plan = useReading('GET /schema/plan', { when: isOpen })
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>The steps, as SQL</summary>
      {isOpen && <Show of={plan}>{({ steps }) => <Code text={steps.map(each => each.sql).join(';\n\n')} />}</Show>}
    </details>
  )
}

function UpkeepPanel() {
  const run = async (dryRun: boolean): Promise<void> => {
    if (!dryRun) {
      const answer = await ask({
        title: 'Delete what is older than its retention?',
        body: 'Runners do this by themselves, little by little. Events that a reader still needs are kept.',
        verb: 'Run upkeep now',
        command: 'rillflow upkeep',
      })
      if (answer === undefined) return
    }
    await act('POST /upkeep', {
      body: { dryRun },
      done: dryRun ? 'A dry run has begun: its report is under Operations.' : 'Upkeep has begun.',
    })
  }
  return (
    <Panel title="Retention">
      <div class="pad stack-2">
        <p class="dim">
          Old attempts, dead letters that are resolved, archived streams: deleted when their time is over.
        </p>
        <div class="actions">
          <Button small refused={refusedFor('admin')} onClick={() => void run(true)}>
            Dry run
          </Button>
          <Button small refused={refusedFor('admin')} onClick={() => void run(false)}>
            Run now…
          </Button>
        </div>
      </div>
    </Panel>
  )
}
