/** Reading by hand: prepared keyset pages of 1000 through the driver, rows as objects, its default parsers. */
import type pg from 'pg'

export interface Row {
  readonly position: string
  readonly version: string
  readonly data: unknown
}

const pageSize = 1000
const columns = `
  position, stream, version, event_id, type, schema_version, data, headers, correlation_id, causation_id, user_id,
  created_at`

export function logPageOf(limit: number): string {
  return `
    select ${columns} from rillflow.events where position > $1 order by position limit ${limit}`
}
export const logPage = logPageOf(pageSize)
export const streamPage = `
  select ${columns} from rillflow.events where stream = $1 and version > $2 order by version limit ${pageSize}`

/** Page after page; each is requested when the one before has been processed. */
export async function readPages(
  next: (last: Row | undefined) => Promise<readonly Row[]>,
  onRow: (row: Row) => void,
): Promise<void> {
  let last: Row | undefined
  for (;;) {
    const rows = await next(last)
    for (const row of rows) onRow(row)
    if (rows.length < pageSize) return
    last = rows.at(-1)
  }
}

export function readLogPages(client: pg.ClientBase, onRow: (row: Row) => void): Promise<void> {
  return readPages(async last => {
    const { rows } = await client.query<Row>({ name: 'log', text: logPage, values: [last?.position ?? '0'] })
    return rows
  }, onRow)
}

export function readStreamPages(pool: pg.Pool, stream: string, onRow: (row: Row) => void): Promise<void> {
  return readPages(async last => {
    const { rows } = await pool.query<Row>({ name: 'stream', text: streamPage, values: [stream, last?.version ?? '0'] })
    return rows
  }, onRow)
}
