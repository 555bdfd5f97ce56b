/**
 * The embedded store under load: a process that is killed loses no acknowledged append, and timers and sockets of its
 * thread keep working.
 */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openStore } from '../../src/store.ts'
import { judgeAppends, type RecordedAppends } from '../../src/verify/record-appends.ts'
import { copyStore } from '../support/embedded.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { type AppendingProcess, startAppending } from './appending-process.ts'
import { long, show } from './chaos.ts'
import { times } from './seeded-random.ts'

const one = { type: 'OrderPlaced', data: { total: 1 } }

test('a process killed while it appends leaves every acknowledged event stored once', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rf-embedded-'))
  await copyStore(folder)
  try {
    const records: RecordedAppends[] = []
    for (let round = 0; round < (long ? 10 : 2); round++) {
      await using child = startAppending({ folder })
      await child.ready
      child.ask({ kind: 'endless', callers: 8 }).catch(() => {})
      await waitUntil(() => acknowledgedBy(child) > 100, { deadlineMs: 60_000, what: 'appends of the child' })
      await child.kill()
      records.push(child.record())
    }

    await expectOneHistory(folder, records)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}, 120_000)

test('three processes that share a folder, one of them killed again and again, lose no acknowledged event', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rf-shared-'))
  await copyStore(folder)
  const records: RecordedAppends[] = []
  const sharing: AppendingProcess[] = []
  const enter = async (): Promise<void> => {
    const child = startAppending({ folder })
    await child.ready
    child.ask({ kind: 'endless', callers: 4 }).catch(() => {})
    sharing.push(child)
  }
  try {
    for (let at = 0; at < 3; at++) await enter()
    for (let round = 0; round < (long ? 30 : 4); round++) {
      const before = sharing.map(acknowledgedBy)
      const allGoOn = (): boolean => sharing.every((child, at) => acknowledgedBy(child) > before[at]! + 20)
      await waitUntil(allGoOn, { deadlineMs: 120_000, what: 'appends of every process' })
      // In turn the one that has the folder open, which is the oldest, and a guest.
      const [killed] = sharing.splice(round % 2, 1)
      await killed!.kill()
      records.push(killed!.record())
      await killed![Symbol.asyncDispose]()
      await enter()
    }
    await Promise.all(sharing.map(child => child.kill()))
    records.push(...sharing.map(child => child.record()))
  } finally {
    await Promise.all(sharing.map(child => child[Symbol.asyncDispose]()))
  }

  await expectOneHistory(folder, records)
  await rm(folder, { recursive: true, force: true })
}, 180_000)

function acknowledgedBy(child: AppendingProcess): number {
  return child.record().calls.filter(({ answer }) => answer?.kind === 'stored').length
}

async function expectOneHistory(folder: string, records: readonly RecordedAppends[]): Promise<void> {
  await using store = await openStore({ folder })
  expect(await judgeAppends(store, records)).toEqual([])
  const calls = records.flatMap(record => record.calls)
  show({ calls: calls.length, unanswered: calls.filter(({ answer }) => answer === undefined).length })
  expect((await store.schema.check()).problems).toEqual([])
}

test('timers and sockets keep working while 64 callers append continuously', async () => {
  await using store = await openStore({ database: await openDatabase(), schema: freshSchema() })
  const echo = createServer(socket => socket.pipe(socket)).listen(0, '127.0.0.1')
  await once(echo, 'listening')
  const socket = connect((echo.address() as AddressInfo).port, '127.0.0.1')
  let working = true
  const callers = times(64, async caller => {
    while (working) await store.events.append(`order-${caller}`, one)
  })

  const gaps: number[] = []
  const began = performance.now()
  const passedMs = (): number => performance.now() - began
  // A starved thread completes no round, however long it runs; one that stalled completes them later.
  while (passedMs() < (long ? 30_000 : 1_500) || (gaps.length <= 10 && passedMs() < 30_000)) {
    const before = performance.now()
    socket.write('ping')
    await Promise.all([once(socket, 'data'), new Promise(resolve => setTimeout(resolve, 5))])
    gaps.push(performance.now() - before)
  }
  working = false
  await Promise.all(callers)
  socket.destroy()
  echo.close()
  const { head } = await store.events.settled()
  show({ appended: head, rounds: gaps.length, longestMs: Math.max(...gaps) })

  expect(gaps.length).toBeGreaterThan(10)
  expect(head).toBeGreaterThan(100)
}, 60_000)
