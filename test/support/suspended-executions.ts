/** Waits until handlers are suspended, and lets the time pass that they wait for. */
import type { Shop } from './shop.ts'
import { waitUntil } from './wait.ts'

/** Resolves when this many executions are suspended, and there are no others. */
export async function untilSuspended({ query }: Pick<Shop, 'query'>, count = 1): Promise<void> {
  const what = `${count} suspended executions`
  await waitUntil(async () => (await executionStates({ query })) === `${count} suspended`, { what })
}

/** Number of executions by state: `3 suspended, 1 running`. */
export async function executionStates({ query }: Pick<Shop, 'query'>): Promise<string> {
  const rows = await query<{ n: number; state: string }>(
    'select state, count(*)::int as n from ~workflow_executions group by state order by state',
  )
  return rows.map(({ n, state }) => `${n} ${state}`).join(', ')
}

/** Moves all due times back by `ms`. A worker sees it with its next query. */
export async function letTimePass({ query }: Pick<Shop, 'query'>, ms: number): Promise<void> {
  const earlier = (column: string): string => `${column} = ~later(${column}, -$1::float8)`
  await query(`update ~workflow_steps set ${earlier('due_at')}`, [ms])
  await query(`update ~workflow_executions set ${earlier('run_at')}, ${earlier('expires_at')}`, [ms])
}
