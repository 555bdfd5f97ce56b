/**
 * With counters no event is skipped, repeated or out of order either. The torture is trusted because it detects a counter
 * that is not locked until the commit.
 */
import { expect, test } from 'vitest'
import { readNumbers } from '../../src/schema/numbers.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { long } from './chaos.ts'
import { naive, readingAll, settledThenRead, tailing } from './log-readers.ts'
import { drawnSlowly, grouped, insideStoresTransaction, saved } from './log-writers.ts'
import { torture } from './ordering-torture.ts'
import { seeded } from './seeded-random.ts'

const work = [drawnSlowly, grouped, saved, grouped, insideStoresTransaction]
const wanted = long ? 5_000 : 300
const patienceMs = long ? 600_000 : 90_000

/** New schemas of these connections get counters, whatever the server wants. */
function countingUrl(): string {
  const url = new URL(postgresUrl())
  url.searchParams.set('options', '-c rillflow.numbers=counter')
  return url.href
}

test(
  'writers that draw from a counter in every way hide no event from any reader',
  async () => {
    const schema = freshSchema()
    const verdicts = await torture({
      url: countingUrl(),
      schema,
      work,
      roundMs: long ? 5_000 : 500,
      done: all => all.every(({ delivered }) => delivered > wanted),
      readers: async ({ stores, from, client }) => [
        tailing(stores[0]!, from),
        tailing(stores[1]!, from),
        readingAll(stores[0]!, from, seeded(1)),
        settledThenRead(await client(), schema, from, seeded(2)),
        // Positions become visible in their order, so not even this one misses any.
        naive(await client(), schema, from, seeded(3)),
      ],
    })

    expect(await readNumbers(await openDatabase(), schema)).toBe('counter')
    for (const verdict of verdicts.values()) expect(verdict).toMatchObject({ problems: [] })
  },
  patienceMs * 2,
)

test(
  'a counter that is raised in another transaction than the events is detected: a correct reader misses events',
  async () => {
    const schema = freshSchema()
    const until = performance.now() + patienceMs
    const verdicts = await torture({
      url: countingUrl(),
      schema,
      work: [drawnSlowly],
      // A sequence is a counter that no transaction holds.
      prepareSchema: [
        `create sequence "${schema}".unlocked`,
        `create or replace function "${schema}".draw(p_count integer, out drawn bigint[]) language plpgsql as
         $$ begin drawn := array(select nextval('"${schema}".unlocked') from generate_series(1, p_count)); end $$`,
        `create or replace function "${schema}".settle(
           out head bigint, out settled bigint, out timeline text, out session text) language plpgsql as
         $$ begin select last_value, last_value, '', '' into head, settled, timeline, session
           from "${schema}".unlocked; end $$`,
      ],
      broken: ['settled, then read'],
      roundMs: 100,
      done: ([reader]) => performance.now() > until || reader!.problems.length > 0,
      readers: async ({ client, from }) => [settledThenRead(await client(), schema, from, seeded(2))],
    })

    const { problems } = verdicts.get('settled, then read')!
    expect(problems.join()).toContain('settled, then read never got position')
  },
  patienceMs * 2,
)
