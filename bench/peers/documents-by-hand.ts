/** Documents in hand-written SQL: prepared statements on a table like ours, with plain expression indexes. */
import type pg from 'pg'
import { openPool } from '../harness/pool.ts'
import type { CustomerStore } from '../workloads/customers.ts'

const columns = 'id, body, version, created_at, updated_at, created_by, updated_by, deleted_at'

/** Our table must exist: this one is made like it. */
export async function openByHand(
  url: string,
  { table, like, gin, poolSize }: { table: string; like: string; gin: boolean; poolSize: number },
): Promise<CustomerStore & AsyncDisposable> {
  const pool = openPool(url, poolSize)
  await makeTable(pool, table, like, gin)
  await pool.query(`
    create index on ${table} ((body ->> 'email'));
    create index on ${table} ((body -> 'address' ->> 'city'))`)
  const run = async (name: string, text: string, values: unknown[]): Promise<unknown[]> =>
    (await pool.query({ name: `${name} ${table}`, text, values })).rows
  const upsert = `
    on conflict (id) do update
    set version = d.version + 1, updated_at = now(), deleted_at = null, body = excluded.body
    returning id, version`
  return {
    get: id =>
      run(
        'get',
        `select body, version, created_at, updated_at, created_by, updated_by
        from ${table}
        where id = $1 and deleted_at is null`,
        [id],
      ),
    put: (id, data) =>
      run('put', `${insertInto(table)} values ($1, $2, 1, now(), now()) ${upsert}`, [id, JSON.stringify(data)]),
    patch: (id, tier) =>
      run(
        'patch',
        `update ${table}
        set body = jsonb_set(
            jsonb_set(body, '{tier}', $2::jsonb), '{visits}', to_jsonb((body ->> 'visits')::numeric + 1)),
          version = version + 1, updated_at = now()
        where id = $1 and deleted_at is null
        returning version`,
        [id, JSON.stringify(tier)],
      ),
    putMany: items =>
      run(
        'put many',
        `${insertInto(table)}
        select item.id, item.body, 1, now(), now()
        from rows from (unnest($1::text[]), jsonb_array_elements($2::jsonb)) as item(id, body)
        ${upsert}`,
        [items.map(({ id }) => id), JSON.stringify(items.map(({ data }) => data))],
      ),
    byEmail: email =>
      run('email', `select ${columns} from ${table} where body ->> 'email' = $1 and deleted_at is null`, [email]),
    byCity: city =>
      run('city', `select ${columns} from ${table} where body -> 'address' ->> 'city' = $1 and deleted_at is null`, [
        city,
      ]),
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

export async function makeTable(pool: pg.Pool, table: string, like: string, gin: boolean): Promise<void> {
  await pool.query(`
    create schema if not exists byhand;
    create table ${table} (like ${like} including defaults including constraints, primary key (id))
    with (fillfactor = 80)`)
  if (gin) await pool.query(`create index on ${table} using gin (body jsonb_path_ops)`)
}

function insertInto(table: string): string {
  return `insert into ${table} as d (id, body, version, created_at, updated_at)`
}
