/** Reading as one does by hand: the driver's own prepared keyset pages of 1000, rows as objects, its default parsers. */
import type pg from 'pg'

const columns = `position, stream, version, event_id, type, schema_version, data, headers, correlation_id, causation_id,
  user_id, created_at`

export const pageStatement = `
  select ${columns} from rillflow.events where position > $1 order by position limit 1000`

type Row = { position: string; version: string } & Record<string, unknown>

export async function* keysetPages(client: pg.ClientBase): AsyncGenerator<Row, void, undefined> {
  let after = '0'
  for (;;) {
    const { rows } = await client.query<Row>({ name: 'page', text: pageStatement, values: [after] })
    yield* rows
    if (rows.length < 1000) return
    after = rows.at(-1)!.position
  }
}

export async function* keysetStream(client: pg.Pool, stream: string): AsyncGenerator<Row, void, undefined> {
  const text = `
    select ${columns} from rillflow.events where stream = $1 and version > $2 order by version limit 1000`
  let after = '0'
  for (;;) {
    const { rows } = await client.query<Row>({ name: 'stream', text, values: [stream, after] })
    yield* rows
    if (rows.length < 1000) return
    after = rows.at(-1)!.version
  }
}
