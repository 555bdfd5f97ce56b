/**
 * Readers of the log for the ordering torture: those of the store, and similar ones that lose events.
 *
 * Each broken reader differs from the correct one (`settleThenRead`) in one thing only. Where the window in which it can
 * lose events is short, a pause makes it longer; the correct reader has the same pause, so that the pause is not the cause.
 */
import type pg from 'pg'
import type { Store } from '../../src/store.ts'
import type { LoggedEvent } from '../../src/verify/append-history.ts'
import { deliveryProblems } from '../../src/verify/check-appends.ts'
import { pause, type Random } from './seeded-random.ts'

export interface LogReader {
  readonly name: string
  /** The types it wants; undefined: all. */
  readonly types?: readonly string[] | undefined
  /** The positions it delivered, in order. */
  readonly delivered: number[]
  /** The position up to which it considers the log delivered. */
  cursor: number
  /** Reads until it is stopped; then it does not move further. */
  run(): Promise<void>
  stop(): void
}

export interface Verdict {
  readonly name: string
  readonly delivered: number
  /** What is wrong with what it got; empty if nothing is. */
  readonly problems: readonly string[]
}

/** Compares the delivered positions with the log, up to the reader's cursor. */
export function judge(reader: LogReader, from: number, log: readonly LoggedEvent[]): Verdict {
  const { name, delivered, cursor, types } = reader
  const problems = deliveryProblems({ name, from, cursor, positions: delivered, types }, log)
  return { name, delivered: delivered.length, problems }
}

/** A reader made of single steps: each delivers the events after the cursor, and returns the new cursor. */
export interface Step {
  readonly positions: readonly number[]
  readonly reached: number
}

function stepping(name: string, from: number, random: Random, step: (after: number) => Promise<Step>): LogReader {
  let running = true
  const reader: LogReader = {
    name,
    delivered: [],
    cursor: from,
    stop() {
      running = false
    },
    async run() {
      while (running) {
        const { positions, reached } = await step(reader.cursor)
        reader.delivered.push(...positions)
        if (reached > reader.cursor) reader.cursor = reached
        await pause(random, 3)
      }
    },
  }
  return reader
}

// ── Correct ──────────────────────────────────────────────────────────────────────────────────────────────────

export function tailing(store: Store, from: number, filter: { types?: string[] } = {}): LogReader {
  const stop = new AbortController()
  const reader: LogReader = {
    name: filter.types === undefined ? 'tail' : 'filtered tail',
    types: filter.types,
    delivered: [],
    cursor: from,
    stop: () => stop.abort(),
    async run() {
      try {
        for await (const event of store.events.tail({ from: from, signal: stop.signal, ...filter })) {
          reader.delivered.push(event.position)
          reader.cursor = event.position
        }
      } catch (error) {
        if (!stop.signal.aborted) throw error
      }
    },
  }
  return reader
}

export function readingAll(store: Store, from: number, random: Random): LogReader {
  return stepping('readAll', from, random, async after => {
    const events = await store.events.readAll({ from: after, includeArchived: true }).toArray()
    return { positions: events.map(event => event.position), reached: events.at(-1)?.position ?? after }
  })
}

/** By hand, with a pause between the statements: their correctness must not depend on timing. */
export function settleThenRead(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('settle, then read', from, random, async after => {
    const settled = await settledBy(client, `select settled from "${schema}".slow_settle()`)
    await pause(random, 5)
    return readUpTo(client, schema, after, settled)
  })
}

/** The same with the function that the schema has. */
export function settledThenRead(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('settled, then read', from, random, async after => {
    const settled = await settledBy(client, `select settled from "${schema}".settle()`)
    await pause(random, 5)
    return readUpTo(client, schema, after, settled)
  })
}

// ── Broken ───────────────────────────────────────────────────────────────────────────────────────────────────

/** No settling at all. */
export function naive(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('position > last', from, random, async after => {
    const positions = await positionsOf(client, `select position from "${schema}".events where position > ${after}`)
    return { positions, reached: positions.at(-1) ?? after }
  })
}

/** The snapshot of the single statement is older than the settled position it finds. */
export function oneStatement(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('settle and read in one statement', from, random, after =>
    together(
      client,
      after,
      `with s as materialized (select settled from "${schema}".slow_settle())
       select s.settled, e.position
       from s left join "${schema}".events as e on e.position > ${after} and e.position <= s.settled`,
    ),
  )
}

/** All statements of a STABLE function use the snapshot of its caller. */
export function stableFunction(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('a STABLE function', from, random, after =>
    together(client, after, `select settled, position from "${schema}".stable_read(${after})`),
  )
}

/** The snapshot is that of the transaction, taken before settling. */
export function repeatableRead(client: pg.Client, other: pg.Client, schema: string, from: number, random: Random) {
  return stepping('a repeatable-read transaction', from, random, async after => {
    await client.query('begin isolation level repeatable read')
    await client.query('select 1')
    const settled = await settledBy(other, `select settled from "${schema}".slow_settle()`)
    const step = await readUpTo(client, schema, after, settled)
    await client.query('commit')
    return step
  })
}

/** The snapshot is that of the cursor, opened before settling. */
export function openedCursor(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('a cursor opened before', from, random, async after => {
    await client.query('begin')
    await client.query(
      `declare log cursor for select position from "${schema}".events where position > ${after} order by position`,
    )
    const settled = await settledBy(client, `select settled from "${schema}".slow_settle()`)
    const positions = await positionsOf(client, 'fetch all from log')
    await client.query('commit')
    return { positions: positions.filter(position => position <= settled), reached: settled }
  })
}

/** A writer that announces between the two reads has drawn below the head that is read last. */
export function locksBeforeHead(client: pg.Client, schema: string, from: number, random: Random): LogReader {
  return stepping('the locks before the head', from, random, async after => {
    const settled = await settledBy(client, `select settled from "${schema}".locks_first()`)
    return readUpTo(client, schema, after, settled)
  })
}

/** Functions of the readers above: settling with a pause before it, and the variants that are wrong on the server. */
export function readerFunctions(schema: string): string[] {
  const sequence = `'"${schema}".events_position'::regclass::oid`
  const bounds = `
    select min(head + "${schema}".signed32(objid::bigint - head)) from pg_locks
    where locktype = 'advisory' and classid = ${sequence} and objsubid = 2 and mode = 'ShareLock'
      and database = (select oid from pg_database where datname = current_database())`
  const head = `select case when is_called then last_value else last_value - 1 end from "${schema}".events_position`
  return [
    `create function "${schema}".slow_settle(out settled bigint) language plpgsql volatile as $$
     begin
       perform pg_sleep(0.003);
       settled := (select s.settled from "${schema}".settle() as s);
     end $$`,
    `create function "${schema}".stable_read(p_after bigint) returns table (settled bigint, "position" bigint)
     language plpgsql stable as $$
     declare
       head bigint;
     begin
       perform pg_sleep(0.003);
       head := (${head});
       settled := least(head, (${bounds}));
       return query
         select stable_read.settled, e.position
         from (select) as one
         left join "${schema}".events as e on e.position > p_after and e.position <= stable_read.settled
         order by 2;
     end $$`,
    `create function "${schema}".locks_first(out settled bigint) language plpgsql volatile as $$
     declare
       head bigint := (${head});
       bound bigint := (${bounds});
     begin
       perform pg_sleep(0.003);
       settled := least((${head}), bound);
     end $$`,
  ]
}

async function settledBy(client: pg.Client, text: string): Promise<number> {
  return Number((await client.query(text)).rows[0].settled)
}

async function positionsOf(client: pg.Client, text: string): Promise<number[]> {
  const { rows } = await client.query(text.startsWith('fetch') ? text : `${text} order by position`)
  return rows.map(row => Number(row.position))
}

async function readUpTo(client: pg.Client, schema: string, after: number, settled: number): Promise<Step> {
  const where = `position > ${after} and position <= ${settled}`
  return {
    positions: await positionsOf(client, `select position from "${schema}".events where ${where}`),
    reached: settled,
  }
}

async function together(client: pg.Client, after: number, text: string): Promise<Step> {
  const { rows } = await client.query(`${text} order by 2`)
  const positions = rows.filter(row => row.position !== null).map(row => Number(row.position))
  return { positions, reached: Number(rows[0]?.settled ?? after) }
}
