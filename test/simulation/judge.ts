/** Judges what a run has left in the database, and nothing else: appends, workflows, read models, deliveries, schedules. */
import type { Database } from '../../src/database/database.ts'
import { judgeAppends, type RecordedAppends } from '../../src/verify/record-appends.ts'
import { checkWorkflows, noErrors, type Query, wrongSteps } from '../chaos/workflows/check-workflows.ts'
import { rules } from '../chaos/workflows/orders.ts'
import type { Plan } from './plan.ts'

export interface Judged {
  readonly database: Database
  readonly schema: string
  readonly query: Query
  readonly recorders: readonly RecordedAppends[]
  readonly mailed: ReadonlySet<number>
  readonly plan: Plan
}

export async function judge({ database, schema, query, recorders, mailed, plan }: Judged): Promise<string[]> {
  const { miscounted, ...errors } = await checkWorkflows(query, rules)
  const counted = Object.entries(errors).filter(([name, n]) => n !== noErrors[name as keyof typeof errors])
  const store = { schema: { name: schema }, transaction: database.transaction }
  return [
    ...counted.map(([name, n]) => `Workflows: ${n} ${name}.`),
    ...miscounted,
    ...(await wrongSteps(query)),
    ...(await judgeAppends(store, recorders, { hasOthers: true })),
    ...(await wrongJoins(query)),
    ...(await wrongReadModels(query)),
    ...(await unmailed(query, mailed)).map(position => `The event at ${position} was not delivered.`),
    ...(await wrongEvents(query, plan)),
  ]
}

/** Whether nothing is left to be done. */
export async function isAllDone(query: Query, mailed: ReadonlySet<number>): Promise<boolean> {
  const left = await query(`
    select 1 from ~workflow_executions
    union all
    select 1 from ~workflow_joins where state = 'open'
    union all
    select 1 from ~workflows where state = 'compensating'
    union all
    select 1 from ~consumers
    where name = 'workflows' and checkpoint < (select max(position) from ~events where type <> 'Counted')
    limit 1`)
  if (left.length > 0) return false
  return (await unmailed(query, mailed)).length === 0 && (await wrongReadModels(query)).length === 0
}

/** Events that the subscription was never given. */
async function unmailed(query: Query, mailed: ReadonlySet<number>): Promise<number[]> {
  const rows = await query<{ position: number }>(`
    select position::float8 as position from ~events where type in ('OrderPaid', 'Counted')`)
  return rows.map(({ position }) => position).filter(position => !mailed.has(position))
}

/** Each read model against a fold of the log. */
async function wrongReadModels(query: Query): Promise<string[]> {
  const rows = await query<{ what: string }>(`
    select format('Stream %s has %s events, and its row says %s.', coalesce(e.stream, c.stream), e.n, c.events) as what
    from (select stream, count(*) as n from ~events where type = 'Counted' group by stream) as e
    full join ~counts as c on c.stream = e.stream
    where c.events is distinct from e.n
    union all
    select format('Workflow %s was folded to %s.', coalesce(e.id, d.id), d.body)
    from (
      select correlation_id as id,
        count(*) filter (where type = 'OrderPlaced') as placed,
        count(*) filter (where type = 'OrderPaid') as paid,
        count(*) filter (where type = 'OrderChecked') as checked
      from ~events
      where type in ('OrderPlaced', 'OrderPaid', 'OrderChecked')
      group by correlation_id) as e
    full join ~cleared as d on d.id = e.id
    where d.body is distinct from jsonb_build_object('placed', e.placed, 'paid', e.paid, 'checked', e.checked)`)
  return rows.map(({ what }) => what)
}

/** A join that is closed has heard of each branch once. */
async function wrongJoins(query: Query): Promise<string[]> {
  const rows = await query<{ what: string }>(`
    select format('A join of %s has %s arrived, %s failed and %s empty, and %s events came.', j.size, j.arrived, j.failed,
      j.empty, count(e.position)) as what
    from ~workflow_joins as j
    join ~workflows as w on w.correlation_id = j.correlation_id and w.state = 'active'
    left join ~events as e on e.correlation_id = j.correlation_id and e.type = 'OrderChecked'
    where j.state = 'closed'
    group by j.id
    having j.arrived + j.failed + j.empty <> j.size or j.arrived <> count(e.position)`)
  return rows.map(({ what }) => what)
}

/** An order that was placed is there once, and a schedule emits once for a time. */
async function wrongEvents(query: Query, plan: Plan): Promise<string[]> {
  const placed = plan.tasks.flatMap(task => (task.kind === 'place' ? [`order-${task.order}`] : []))
  const rows = await query<{ what: string }>(
    `select format('%s was placed %s times.', p.id, count(e.position)) as what
    from unnest($1::text[]) as p(id)
    left join ~events as e on e.correlation_id = p.id and e.type = 'OrderPlaced'
    group by p.id
    having count(e.position) <> 1
    union all
    select format('The report of %s was emitted %s times.', data ->> 'at', count(*))
    from ~events
    where type = 'ReportDue'
    group by data ->> 'at'
    having count(*) > 1`,
    [placed],
  )
  return rows.map(({ what }) => what)
}
