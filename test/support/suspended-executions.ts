/** Handlers that wait: until they do, and as if the time they wait for had passed. */
import type { Shop } from './shop.ts'
import { waitUntil } from './wait.ts'

/** Resolves when so many executions are suspended, and no other one is there. */
export async function untilSuspended({ query }: Pick<Shop, 'query'>, count = 1): Promise<void> {
  const what = `${count} suspended executions`
  await waitUntil(async () => (await executionStates({ query })) === `${count} suspended`, { what })
}

/** How many executions there are, by state: `3 suspended, 1 running`. */
export async function executionStates({ query }: Pick<Shop, 'query'>): Promise<string> {
  const rows = await query<{ n: number; state: string }>(
    'select state, count(*)::int as n from ~workflow_executions group by state order by state',
  )
  return rows.map(({ n, state }) => `${n} ${state}`).join(', ')
}

/** For all that waits it is so much later. A worker sees it with its next look. */
export async function letTimePass({ query }: Pick<Shop, 'query'>, ms: number): Promise<void> {
  const earlier = (column: string): string => `${column} = ${column} - make_interval(secs => $1::float8 / 1000)`
  await query(`update ~workflow_steps set ${earlier('due_at')}`, [ms])
  await query(`update ~workflow_executions set ${earlier('run_at')}, ${earlier('expires_at')}`, [ms])
}
