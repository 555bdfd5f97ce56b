/**
 * Planted bugs: protocols that lose, repeat or forget. The simulation must find each of them, or it shows nothing.
 *
 * A bug is a change of a statement, or of a function of the schema. A change whose text is no longer there is an error.
 */
import type { Database, Executor } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'
import type { Query } from '../chaos/workflows/check-workflows.ts'
import type { Plan } from './plan.ts'
import type { SimulateOptions } from './simulate.ts'

export interface Mutant extends SimulateOptions {
  readonly name: string
  /** Makes the harm likely; other plans may take many seeds. */
  readonly likely?: ((plan: Plan) => Plan) | undefined
}

export const mutants: readonly Mutant[] = [
  {
    name: 'a checkpoint is saved without its fence',
    spoil: rewriting({
      'consumers.save': [
        /and c\.fence = (\$\d+)::bigint\s+and c\.checkpoint = (\$\d+)::bigint\s+and c\.checkpoint <=/,
        'and $1::bigint >= 0 and $2::bigint >= 0 and 0 <=',
      ],
    }),
    likely: withPauses,
  },
  {
    name: 'an attempt is completed without its fence',
    sabotage: changing(
      'workflow_hold',
      /select array_agg\(x\.id\) into accepted.*for update of x\) as x;/s,
      'accepted := p_ids;',
    ),
    likely: withPauses,
  },
  {
    name: 'a lease is taken without a look at its holder',
    spoil: rewriting({ '*': [/c\.lease_until <= /g, 'c.lease_until > '] }),
    likely: withCrashes,
  },
  {
    name: 'a worker is taken for dead too early',
    spoil: rewriting({ '*': [/-r\.lease_ms\)/g, '-r.lease_ms / 1000.0)'] }),
    likely: withCrashes,
  },
  {
    name: 'the end of a wait is not stored',
    sabotage: changing(
      'workflow_complete',
      /when u\.kind = 'suspend' then least\(.*?x\.expires_at\)/s,
      "when u.kind = 'suspend' then null",
    ),
    // Of this order nothing comes but the end of the wait.
    likely: plan => ({ ...plan, faults: [], tasks: [{ kind: 'place', order: 12, afterMs: 0 }] }),
  },
  {
    name: 'a join counts a branch twice',
    spoil: rewriting({ 'workflows.move_joins': [/set arrived = u\.arrived,/, 'set arrived = u.arrived + 1,'] }),
  },
]

/** The same work, with processes that are away for longer than their leases, again and again. */
function withPauses(plan: Plan): Plan {
  const faults = Array.from({ length: 8 }, (_, n) => ({
    ...{ kind: 'freeze' as const, step: 100 + 60 * n + ((plan.seed * 37 + n * 11) % 60), ms: 14_000 + 500 * n },
  }))
  return { ...plan, processes: 2, faults }
}

/** The same work with crashes alone: whoever lives has its leases. */
function withCrashes(plan: Plan): Plan {
  return { ...plan, processes: 2, faults: plan.faults.filter(({ kind }) => kind === 'crash') }
}

/** Changes the text of statements by their label; `*` stands for all that have the text. */
function rewriting(
  changes: Readonly<Record<string, readonly [from: RegExp, to: string]>>,
): NonNullable<SimulateOptions['spoil']> {
  const change = (statement: Statement): Statement => {
    const { label, text } = statement
    const [from, to] = changes[label] ?? changes['*'] ?? []
    if (from === undefined) return statement
    const changed = text.replace(from, to!)
    if (changed === text && changes[label] !== undefined) throw new Error(`${label} has no ${from}`)
    return changed === text ? statement : { ...statement, text: changed }
  }
  const changed = <E extends Executor>(executor: E): E => ({
    ...executor,
    run: statement => executor.run<never>(change(statement)),
    runArrays: statement => executor.runArrays(change(statement)),
  })
  return database => ({
    ...changed<Database>(database),
    transaction: (work, options) => database.transaction(tx => work(changed(tx)), options),
  })
}

/** Changes the text of a function of the schema. */
function changing(name: string, from: RegExp, to: string): NonNullable<SimulateOptions['sabotage']> {
  return async (query: Query) => {
    const [row] = await query<{ text: string }>(
      `select pg_get_functiondef(oid) as text from pg_proc where proname = $1 and pronamespace = 'simulated'::regnamespace`,
      [name],
    )
    const changed = row!.text.replace(from, to)
    if (changed === row!.text) throw new Error(`${name} has no ${from}`)
    await query(changed)
  }
}
