import { expect, test } from 'vitest'
import { fragment } from '../../src/database/sql.ts'
import {
  type DueDuty,
  type Duty,
  type DutyWorker,
  duties,
  readDue,
  runDuties,
} from '../../src/workflows/work/duties.ts'
import { logOf } from '../support/consumer-parts.ts'
import { openShop } from '../support/shop.ts'

/** A worker without handlers and schedules. Its row is stored by `enter`. */
async function openDutyWorker() {
  const shop = await openShop()
  const log = logOf(shop)
  const hints: string[] = []
  const noHint = () => {}
  const worker = {
    ...{
      log,
      owner: log.database.soleUser ? `${log.database.soleUser}/own` : 'own',
      handlers: new Map(),
      leaseMs: 15_000,
    },
    hints: { ready: () => hints.push('ready'), begun: noHint, ended: noHint, changed: noHint },
    work: { compare: () => new Map(), ended: () => [] },
    scheduler: { names: () => [], run: async () => 0 },
    lookIn: () => {},
    runsSchedule: () => true,
    claimSoon: () => {},
  } as unknown as DutyWorker
  const enter = (owner: string, heartbeat: string) =>
    shop.query(
      `insert into ~runners (id, fence, role, started_at, consumers, lease_ms, concurrency, routes, heartbeat_at)
       values ($1, 0, 'active', now(), '{}', 15000, 1, '{1}', now() + $2::interval)`,
      [owner, heartbeat],
    )
  return { ...shop, worker, enter, hints }
}

const namesOf = (due: readonly DueDuty[]): string[] => due.filter(({ inMs }) => inMs <= 0).map(({ duty }) => duty.name)

test('with nothing to do only the comparison of own executions is due', async () => {
  const { worker, enter } = await openDutyWorker()

  await enter(worker.owner, '0 s')
  const due = await readDue(worker)

  expect(namesOf(due)).toEqual(['compare own executions'])
  expect(new Set(duties.map(({ name }) => name)).size).toBe(duties.length)
})

test('a dead worker is found by its heartbeat and taken over from, once', async () => {
  const { worker, enter, query } = await openDutyWorker()
  await enter(worker.owner, '0 s')
  await enter('dead', '-1 hour')

  const due = await readDue(worker)
  await runDuties(worker, due)

  expect(due).toContainEqual(expect.objectContaining({ inMs: 0, items: ['dead'] }))
  expect(await query(`select id from ~runners where routes <> '{}'`)).toEqual([{ id: worker.owner }])
  expect(namesOf(await readDue(worker))).toEqual(['compare own executions'])
})

test('a new duty is one entry: it says when it is due, what is done, and when to look again', async () => {
  const { worker, enter, hints } = await openDutyWorker()
  await enter(worker.owner, '0 s')
  const done: string[] = []
  const watering: Duty = {
    name: 'water the plants',
    dueInMs: () => fragment`(select -5)`,
    items: () => fragment`(select array['fern', 'palm'])`,
    run: async (_, { items }) => done.push(...items),
  }
  const later: Duty = { name: 'sweep', dueInMs: () => fragment`(select 700)`, run: async () => 0 }

  const due = await readDue(worker, [watering, later])
  expect(await runDuties(worker, due)).toEqual({ count: 2, nextInMs: 0 })
  expect(await runDuties(worker, due.slice(1))).toEqual({ count: 0, nextInMs: 700 })

  expect([done, hints]).toEqual([['fern', 'palm'], ['ready']])
})
