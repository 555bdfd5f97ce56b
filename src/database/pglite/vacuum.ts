/**
 * Vacuum, analyze and checkpoints for PGlite, which has no background processes that do them.
 *
 * - Checkpoints. Without them the write-ahead log grows for ever (measured: 288 MB after 400,000 events, with
 *   `max_wal_size` at 64 MB), and a restart after a crash replays all of it. One per `idleWalBytes` when no call waits; one
 *   per `forcedWalBytes` in any case (100–200 ms on this thread).
 * - `vacuum` of small tables whose rows change much, and `analyze` of any table that doubled: only when no call waits.
 *   A large table is never vacuumed here, because that would stop the process for seconds.
 * - Once in two billion transactions PostgreSQL must freeze old rows, or it refuses writes. Long before that, one
 *   `vacuum (freeze)` of everything.
 *
 * It looks at most once a second, and only after work. After a failure it looks again, later each time.
 */
import type { Clock } from '../../core/clock.ts'
import { openLoop } from '../../core/loop.ts'
import { identifier, sql } from '../sql.ts'
import type { Engine } from './engine.ts'
import type { Turns } from './turns.ts'

export interface Vacuum {
  /** To be called after each use of the engine. */
  noteWork(): void
  stop(): void
}

export interface VacuumOptions {
  inTurn(job: (engine: Engine) => Promise<void>): Promise<void>
  /** How much PGlite has done so far; undefined while another process has it and looks after it. */
  work(): number | undefined
  readonly turns: Turns
  readonly clock: Clock
}

const lookMs = 1_000
/** Counted as the work of a link is. */
const workPerLook = 500
const idleWalBytes = 32 * 2 ** 20
const forcedWalBytes = 128 * 2 ** 20
const smallBytes = 32 * 2 ** 20
const frozenAge = 500_000_000

const selectState = sql`/* pglite.state */
  select
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint,
    (select age(datfrozenxid) from pg_database where datname = current_database())
  from pg_control_checkpoint()`

const selectTables = sql`/* pglite.tables */
  select
    stat.schemaname,
    stat.relname,
    stat.n_dead_tup > 50 + 0.2 * stat.n_live_tup and pg_relation_size(stat.relid) <= ${smallBytes}::bigint
  from pg_stat_user_tables as stat
  join pg_class as class on class.oid = stat.relid
  where stat.n_dead_tup > 50 + 0.2 * stat.n_live_tup and pg_relation_size(stat.relid) <= ${smallBytes}::bigint
    or stat.n_mod_since_analyze > 50 + greatest(class.reltuples, 0)
  order by stat.relid`

export function startVacuum({ inTurn, work, turns, clock }: VacuumOptions): Vacuum {
  let isStopped = false
  let workAtLastLook = work() ?? 0
  /** Whether a call waits for the engine, or the store is closing. */
  const mustYield = (): boolean => turns.waiting > 0 || isStopped

  const look = async (): Promise<undefined> => {
    await inTurn(async engine => {
      const { walBytes, age } = await readState(engine)
      if (walBytes > forcedWalBytes) await engine.command('checkpoint')
      if (age > frozenAge && !mustYield()) await engine.command('vacuum (freeze)')
      for (const command of mustYield() ? [] : await readCommands(engine))
        if (!mustYield()) await engine.command(command)
      // Last, because vacuum and analyze write to the log as well.
      if (!mustYield() && (await readState(engine)).walBytes > idleWalBytes) await engine.command('checkpoint')
      if (!mustYield()) workAtLastLook = work() ?? 0
    })
  }
  const loop = openLoop({ look, pollMs: Number.POSITIVE_INFINITY, clock, unref: true })

  return {
    noteWork() {
      if (!isStopped && (work() ?? 0) - workAtLastLook >= workPerLook) loop.lookIn(lookMs)
    },
    stop() {
      isStopped = true
      // Not waited for: a look that runs holds a turn, which closing waits for.
      void loop.stop()
    },
  }
}

async function readState(engine: Engine): Promise<{ walBytes: number; age: number }> {
  const [[walBytes, age]] = (await engine.run(selectState, true)) as [[number, number]]
  return { walBytes, age }
}

async function readCommands(engine: Engine): Promise<string[]> {
  const tables = (await engine.run(selectTables, true)) as [string, string, boolean][]
  return tables.map(([schema, table, isChurning]) => {
    return `${isChurning ? 'vacuum (analyze)' : 'analyze'} ${identifier(schema, table).quoted}`
  })
}
