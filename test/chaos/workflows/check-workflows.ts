/**
 * The checker. It relies only on the database: events, the effects that handlers have committed, the activity, and the
 * stored state of workflows, lanes and counters.
 */

export type Query = <R extends object = Record<string, unknown>>(
  text: string,
  values?: readonly unknown[],
) => Promise<R[]>

/** Written by handlers in the transaction that completes them, in the order in which they commit within a lane. */
export const effectsTable: string = `create table if not exists ~effects (
  n bigint generated always as identity primary key,
  execution uuid not null,
  handler text not null,
  position bigint not null,
  emitted integer not null,
  attempt integer not null,
  worker text not null)`

export const effectText: string = `insert into ~effects (execution, handler, position, emitted, attempt, worker)
  values ($1, $2, $3, $4, $5, $6)`

/** Facts about the handlers of a scenario that the checker needs. */
export interface Rules {
  /** The handlers that want events of a type. */
  readonly wanted: Readonly<Record<string, readonly string[]>>
  /** Ordered handlers, and the lane of an event. */
  readonly lanes: Readonly<Record<string, (event: EventRow) => string>>
  /** Joins, and the handler that opens a batch for each of its effects. */
  readonly joins?: Readonly<Record<string, string>>
}

export interface WorkflowErrors {
  /** Events that a handler wants, and which have neither an effect, a dead letter nor a cancellation. */
  readonly lost: number
  /** Effects that came more than once, have no known event, or whose events are not the emitted ones. */
  readonly repeated: number
  readonly unknown: number
  readonly torn: number
  /** Effects after one with a higher position, in the same lane. */
  readonly outOfOrder: number
  /** Executions whose activity is not: dispatched, then attempts, each begun and ended once, then one end. */
  readonly malformed: number
  /** Joins that were not closed, or whose end came more than once or not at all. */
  readonly unjoined: number
  /** Remaining executions; workflows that are neither settled, failed, cancelled nor compensated. */
  readonly left: number
  readonly unended: number
  /** Stored counts that are wrong. */
  readonly miscounted: readonly string[]
}

export const noErrors: WorkflowErrors = {
  ...{ lost: 0, repeated: 0, unknown: 0, torn: 0, outOfOrder: 0, malformed: 0, unjoined: 0, left: 0, unended: 0 },
  miscounted: [],
}

export interface EventRow {
  readonly position: string
  readonly id: string
  readonly type: string
  readonly data: unknown
  readonly correlation_id: string
  readonly causation_id: string | null
  readonly emitter: string | null
}

interface EffectRow {
  readonly position: string
  readonly execution: string
  readonly handler: string
  readonly emitted: number
}

/** The ends of cancelled workflows: executions that were open then need no effect. */
const cancelled = `('cancelled', 'compensated', 'compensationFailed')`

/** To be called when nothing runs. */
export async function checkWorkflows(query: Query, rules: Rules): Promise<WorkflowErrors> {
  const events = await query<EventRow>(`
    select position::text, event_id as id, type, data, correlation_id, causation_id,
      headers->'workflow'->>'handler' as emitter
    from ~events
    order by position`)
  const effects = await query<EffectRow>('select position::text, execution, handler, emitted from ~effects order by n')
  const given = await query<{ about: string }>(`
    select consumer || ' ' || event_id as about from ~dead_letters
    union all
    select 'cancelled ' || correlation_id from ~workflows where state in ${cancelled}`)
  const excused = new Set(given.map(({ about }) => about))
  return {
    ...judgeEffects(rules, events, effects, excused),
    malformed: await malformed(query),
    unjoined: await unjoined(query, rules, effects),
    left: await countOf(
      query,
      `(
        select id::text from ~workflow_executions
        union all
        select lane from ~workflow_lanes
        union all
        -- Those of a dead letter are there for its retry.
        select s.execution::text from ~workflow_steps as s
        where not exists (select from ~dead_letters as d where d.execution = s.execution and d.state = 'open')
        union all
        select execution::text from ~workflow_waits) as l`,
    ),
    unended: await countOf(query, `~workflows where state not in ('active', ${cancelled.slice(1)} or open <> 0`),
    miscounted: [...(await inconsistencies(query)), ...(await wrongCounters(query))],
  }
}

function judgeEffects(
  { wanted, lanes, joins = {} }: Rules,
  events: readonly EventRow[],
  effects: readonly EffectRow[],
  excused: ReadonlySet<string>,
): Pick<WorkflowErrors, 'lost' | 'repeated' | 'unknown' | 'torn' | 'outOfOrder'> {
  const byPosition = new Map(events.map(event => [event.position, event]))
  const emitted = events.filter(event => event.emitter !== null && joins[event.emitter] === undefined)
  const children = countBy(emitted.map(event => `${event.emitter} ${event.causation_id}`))
  const seen = new Set<string>()
  const lastOfLane = new Map<string, number>()
  const errors = { lost: 0, repeated: 0, unknown: 0, torn: 0, outOfOrder: 0 }
  for (const { handler, position, emitted } of effects.filter(each => joins[each.handler] === undefined)) {
    const event = byPosition.get(position)
    if (event === undefined || !(wanted[event.type] ?? []).includes(handler)) {
      errors.unknown++
      continue
    }
    if (seen.has(`${handler} ${position}`)) errors.repeated++
    seen.add(`${handler} ${position}`)
    if ((children.get(`${handler} ${event.id}`) ?? 0) !== emitted) errors.torn++
    children.delete(`${handler} ${event.id}`)
    const laneOf = lanes[handler]
    if (laneOf === undefined) continue
    const lane = `${handler} ${laneOf(event)}`
    if (Number(position) < (lastOfLane.get(lane) ?? -1)) errors.outOfOrder++
    lastOfLane.set(lane, Number(position))
  }
  for (const event of events)
    for (const handler of wanted[event.type] ?? [])
      if (
        !seen.has(`${handler} ${event.position}`) &&
        !excused.has(`handler:${handler} ${event.id}`) &&
        !excused.has(`cancelled ${event.correlation_id}`)
      )
        errors.lost++
  // Events of handlers that have no effect.
  errors.torn += children.size
  return errors
}

/** Each batch has one join, each join one end: an effect with its events, a dead letter, or a cancellation. */
async function unjoined(query: Query, { joins = {} }: Rules, effects: readonly EffectRow[]): Promise<number> {
  const rows = await query<{ id: string; handler: string; state: string; given: boolean; emitted: number }>(`
    select j.id, r.handler, j.state,
      exists (select from ~dead_letters as d where d.execution = j.id) or w.state in ${cancelled} as given
    from ~workflow_joins as j
    join ~workflow_routes as r on r.id = j.route
    join ~workflows as w on w.correlation_id = j.correlation_id`)
  const ends = countBy(effects.map(({ execution }) => execution))
  const isWrong = ({ id, state, given }: (typeof rows)[number]): boolean =>
    state === 'open' || (given ? (ends.get(id) ?? 0) > 1 : ends.get(id) !== 1)
  let wrong = rows.filter(isWrong).length
  for (const [join, opener] of Object.entries(joins)) {
    const own = effects.filter(({ handler }) => handler === join)
    const emitted = await countOf(query, `~events where headers->'workflow'->>'handler' = '${join}'`)
    wrong += Math.abs(emitted - own.reduce((sum, each) => sum + each.emitted, 0))
    const opened = effects.filter(({ handler }) => handler === opener).length
    wrong += Math.abs(opened - rows.filter(({ handler }) => handler === join).length)
  }
  return wrong
}

/** Rows of steps and undos that are wrong: each must exist once, and only with the effect it belongs to. */
export async function wrongSteps(query: Query): Promise<string[]> {
  const rows = await query<{ what: string }>(`
    select 'booked ' || count(*) || ' times: ' || execution as what
    from ~bookings
    group by execution
    having count(*) > 1
    union all
    select 'greeted without a booking: ' || f.execution
    from ~effects as f
    where f.handler = 'greet'
      and not exists (select from ~bookings as b where b.execution = f.execution)
    union all
    select 'refunded ' || count(*) || ' times: ' || execution
    from ~refunds
    group by execution
    having count(*) > 1
    union all
    select undos.n || ' undos, but ' || refunds.n || ' refunds'
    from (select count(*) as n from ~workflow_undos where state = 'done') as undos,
      (select count(*) as n from ~refunds) as refunds
    where undos.n <> refunds.n`)
  return rows.map(({ what }) => what)
}

/** Invariants that hold at every moment, checked in one snapshot, also during the load. */
export async function inconsistencies(query: Query): Promise<string[]> {
  const rows = await query<{ what: string }>(`
    select 'open of workflow ' || w.correlation_id || ' is ' || w.open || ', not ' || r.n as what
    from ~workflows as w
    cross join lateral (
      select (select count(*) from ~workflow_executions as x where x.correlation_id = w.correlation_id)
        + (select count(*) from ~workflow_joins as j where j.correlation_id = w.correlation_id and j.state = 'open')) as r(n)
    where w.open <> r.n
    union all
    select 'lane ' || l.lane || ' has ' || l.open || ' open and ' || l.active || ' active, not ' || r.open || ' and '
      || r.active || ', ' || r.blocked || ' wait'
    from ~workflow_lanes as l
    cross join lateral (
      select count(*) as open,
        count(*) filter (where x.state in ('ready', 'running')
          or (l.ordered and x.state in ('delayed', 'suspended', 'parked', 'stopping'))) as active,
        count(*) filter (where x.state = 'blocked') as blocked
      from ~workflow_executions as x
      where x.lane = l.lane) as r
    where l.open <> r.open or l.active <> r.active or (r.blocked > 0 and l.active < l.width and not l.parked)
    union all
    select 'execution ' || x.id || ' is ' || x.state || ' in lane ' || x.lane || ', which is not there'
    from ~workflow_executions as x
    where x.lane is not null
      and not exists (select from ~workflow_lanes as l where l.lane = x.lane)
    union all
    select 'execution ' || x.id || ' is held behind nothing'
    from ~workflow_executions as x
    where x.state = 'held'
      and not exists (
        select from ~workflow_executions as h where h.lane = x.lane and h.state = 'running' and h.fence = x.fence)
    union all
    select 'lane ' || x.lane || ' runs ' || count(*) || ' at once'
    from ~workflow_executions as x
    join ~workflow_lanes as l on l.lane = x.lane
    where x.state = 'running'
    group by x.lane, l.width
    having count(*) > l.width`)
  return rows.map(({ what }) => what)
}

async function wrongCounters(query: Query): Promise<string[]> {
  const rows = await query<{ name: string; kept: number; real: number }>(`
    select r.name, coalesce((select sum((to_jsonb(c)->>r.name)::bigint) from ~workflow_counters as c), 0)::integer as kept,
      r.n::integer as real
    from (
      select 'workflows', count(*) from ~workflows
      union all
      select 'active', count(*) from ~workflows where open > 0
      union all
      select 'events', count(*) from ~events as e join ~workflows as w on w.correlation_id = e.correlation_id
      union all
      select 'dispatched', count(*) from ~workflow_activity where kind = 'dispatched'
      union all
      select 'completed', count(*) from ~workflow_activity where kind in ('completed', 'skipped')
      union all
      select 'cancelled', count(*) from ~workflow_activity where kind = 'cancelled'
      union all
      select 'failed', count(*) from ~workflow_activity where kind = 'failed'
        and outcome not in ('retry', 'lost', 'interrupted'))
      as r(name, n)`)
  return rows.filter(({ kept, real }) => kept !== real).map(({ name, kept, real }) => `${name} is ${kept}, not ${real}`)
}

/** Executions whose activity lines are not a valid life. */
async function malformed(query: Query): Promise<number> {
  const lines = await query<{ execution: string; kind: string; outcome: string | null }>(
    'select execution, kind, outcome from ~workflow_activity order by execution, position',
  )
  const lives = new Map<string, Life>()
  for (const line of lines) lives.set(line.execution, nextIn(lives.get(line.execution) ?? 'new', line))
  return [...lives.values()].filter(life => life !== 'over').length
}

type Life = 'new' | 'waiting' | 'running' | 'over' | 'broken'

function nextIn(life: Life, { kind, outcome }: { kind: string; outcome: string | null }): Life {
  if (kind === 'dispatched') return life === 'new' ? 'waiting' : 'broken'
  if (kind === 'cancelled') return life === 'waiting' || life === 'running' ? 'over' : 'broken'
  if (kind === 'started') return life === 'waiting' ? 'running' : 'broken'
  if (life !== 'running') return 'broken'
  if (kind === 'failed') return ['retry', 'lost', 'interrupted'].includes(outcome ?? '') ? 'waiting' : 'over'
  return kind === 'completed' || kind === 'skipped' ? 'over' : 'waiting'
}

async function countOf(query: Query, from: string): Promise<number> {
  const [row] = await query<{ n: number }>(`select count(*)::integer as n from ${from}`)
  return row!.n
}

function countBy(names: readonly string[]): Map<string, number> {
  const counted = new Map<string, number>()
  for (const name of names) counted.set(name, (counted.get(name) ?? 0) + 1)
  return counted
}
