import { mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type FolderLock, lockFolder } from '../../src/database/pglite/folder-lock.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import { type FolderProcess, startFolderProcess } from '../support/folder-process.ts'
import { waitUntil } from '../support/wait.ts'

let folder: string
const processes: FolderProcess[] = []
const locks: FolderLock[] = []

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rillflow-lock-'))
})

afterEach(async () => {
  await Promise.all(processes.splice(0).map(each => each.kill()))
  await Promise.all(locks.splice(0).map(lock => lock.release()))
  await rm(folder, { recursive: true })
})

function startProcess(): FolderProcess {
  const started = startFolderProcess()
  processes.push(started)
  return started
}

async function lock(options?: Parameters<typeof lockFolder>[1]): Promise<FolderLock> {
  const taken = await lockFolder(folder, options)
  locks.push(taken)
  return taken
}

/** The lock file of a holder that is this process except for the given fields. */
async function pretendHolder(different: Record<string, unknown>): Promise<string> {
  const own = await lockFolder(folder)
  const [name] = (await readdir(folder)) as [string]
  const holder = JSON.parse(await readFile(join(folder, name), 'utf8'))
  await own.release()
  await writeFile(join(folder, name), JSON.stringify({ ...holder, ...different }))
  return join(folder, name)
}

async function ageBy(path: string, ms: number): Promise<void> {
  const then = new Date(Date.now() - ms)
  await utimes(path, then, then)
}

describe('a store in a folder', () => {
  let shared: string
  let first: FolderProcess
  let second: FolderProcess

  beforeAll(async () => {
    shared = await mkdtemp(join(tmpdir(), 'rillflow-folder-'))
    first = startFolderProcess()
    second = startFolderProcess()
  })

  afterAll(async () => {
    await Promise.all([first.kill(), second.kill()])
    await rm(shared, { recursive: true })
  })

  test('is created again if its creation was interrupted', async () => {
    await mkdir(join(shared, 'data'))
    await writeFile(join(shared, 'data', 'PG_VERSION'), '18\n')
    await writeFile(join(shared, 'unfinished'), '')

    expect(await first.ask('open', shared)).toEqual({ pid: first.pid })
    expect(await readdir(shared)).not.toContain('unfinished')
  })

  test('refuses a folder in which "data" is not its own, and does not change it', async () => {
    await mkdir(join(folder, 'data'))
    await writeFile(join(folder, 'data', 'prices.csv'), 'teapot;1250')

    const opening = openPglite({ folder })

    await expect(opening).rejects.toMatchObject({ code: 'invalid_option', option: 'folder' })
    expect(await readdir(folder)).not.toContain('unfinished')
    expect(await readdir(join(folder, 'data'))).toEqual(['prices.csv'])
  })

  test('serves a second process as its guest', async () => {
    expect(await second.ask('open', shared)).toEqual({ pid: second.pid })
    expect(await second.ask('count')).toEqual({ orders: 0 })
  })

  test('is taken over by its guest after its process was killed, with all acknowledged events', async () => {
    void first.ask('write').catch(() => {})
    await waitUntil(() => first.acknowledged > 200, { deadlineMs: 60_000 })

    await first.kill()

    expect((await second.ask('count')).orders).toBeGreaterThanOrEqual(first.acknowledged)
  })

  test('does no more work after another process has taken the folder', async () => {
    const [name] = (await readdir(shared)).filter(each => each.startsWith('lock.')) as [string]
    const later = join(shared, `lock.${Number(name.slice(5)) + 1}`)
    expect(await second.ask('count')).toMatchObject({ orders: expect.any(Number) })

    await writeFile(later, JSON.stringify({ pid: 4711, host: 'elsewhere', since: 'now', token: 'other' }))
    await waitUntil(async () => (await second.ask('count')).error !== undefined, { deadlineMs: 60_000 })

    const { error } = await second.ask('count')
    expect(error).toMatchObject({ code: 'folder_locked', pid: 4711, host: 'elsewhere' })
    expect(await second.ask('close')).toEqual({})
  })
})

test('of five processes that want the folder of a dead one, exactly one gets it', { timeout: 120_000 }, async () => {
  const rivals = Array.from({ length: 5 }, startProcess)
  for (let round = 0; round < 3; round++) {
    await Promise.all(rivals.map(rival => rival.ask('wake')))

    const at = Date.now() + 50
    const answers = await Promise.all(rivals.map(rival => rival.ask('lock', folder, at)))

    const winner = rivals.findIndex((_, index) => answers[index]!.pid !== undefined)
    const { pid } = rivals[winner]!
    const locked = { error: expect.objectContaining({ code: 'folder_locked', pid }) }
    expect(answers).toEqual(rivals.map((_, index) => (index === winner ? { pid } : locked)))
    await rivals[winner]!.kill()
    rivals[winner] = startProcess()
  }
})

test('of many concurrent calls that want the folder of a dead holder, exactly one gets it, every time', async () => {
  for (let round = 0; round < 20; round++) {
    await pretendHolder({ pid: 2 ** 22 + 1, token: `dead-${round}` })

    const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => lock()))

    expect(outcomes.filter(outcome => outcome.status === 'fulfilled')).toHaveLength(1)
    await Promise.all(locks.splice(0).map(each => each.release()))
  }
  expect(await readdir(folder)).toEqual([expect.stringMatching(/^lock\.\d+$/)])
})

test('a process cannot take a folder twice', async () => {
  await lock()

  await expect(lock()).rejects.toMatchObject({ code: 'folder_locked', pid: process.pid })
})

test('a released folder can be taken immediately', async () => {
  const first = await lock()
  await first.release()
  await first.release()

  expect((await lock()).lost()).toBeUndefined()
})

test('a process with the pid of a dead holder is not mistaken for it', async () => {
  await pretendHolder({ started: '1' })

  await expect(lock()).resolves.toBeDefined()
})

test.each([
  { holder: 'on another host', different: { host: 'elsewhere' } },
  { holder: 'of another boot', different: { boot: 'before' } },
  { holder: 'in another process namespace', different: { namespace: 'pid:[1]' } },
  { holder: 'that says nothing of its start', different: { started: undefined } },
])('a holder $holder is judged by its heartbeat', async ({ different }) => {
  const path = await pretendHolder(different)

  await ageBy(path, 30_000)
  await expect(lock()).rejects.toMatchObject({ code: 'folder_locked', pid: process.pid })
  await ageBy(path, 70_000)
  await expect(lock()).resolves.toBeDefined()
})

test('an empty lock file is judged by its age', async () => {
  const path = join(folder, 'lock.3')
  await writeFile(path, '')

  await expect(lock()).rejects.toMatchObject({ code: 'folder_locked', pid: 0 })
  await ageBy(path, 70_000)
  await expect(lock()).resolves.toBeDefined()
})

test('a holder rewrites its file as a heartbeat', async () => {
  await lock({ heartbeatMs: 10 })
  const path = join(folder, 'lock.1')
  await ageBy(path, 70_000)

  await waitUntil(async () => Date.now() - (await stat(path)).mtimeMs < 10_000)
  expect(JSON.parse(await readFile(path, 'utf8'))).toMatchObject({ pid: process.pid, host: hostname() })
})

test('a holder whose folder was taken notices, reports it once, and never touches the new lock', async () => {
  const reported: unknown[] = []
  const holder = await lock({ heartbeatMs: 10, onLost: error => reported.push(error) })
  const taken = JSON.stringify({ pid: 4711, host: 'elsewhere', since: 'now', token: 'other' })

  await writeFile(join(folder, 'lock.2'), taken)
  await waitUntil(() => holder.lost() !== undefined)
  await holder.release()

  expect(holder.lost()).toMatchObject({ code: 'folder_locked', pid: 4711, host: 'elsewhere' })
  expect(reported).toEqual([holder.lost()])
  expect(await readFile(join(folder, 'lock.2'), 'utf8')).toBe(taken)
})

test('a holder whose lock file was removed no longer trusts the folder', async () => {
  const holder = await lock({ heartbeatMs: 10 })

  await rm(join(folder, 'lock.1'))

  await waitUntil(() => holder.lost() !== undefined)
  expect(holder.lost()).toMatchObject({ code: 'folder_locked' })
})

test('a folder that cannot be written is refused with the reason', async () => {
  await writeFile(join(folder, 'file'), '')

  const below = lockFolder(join(folder, 'file', 'store'))

  await expect(below).rejects.toMatchObject({ code: 'folder_not_writable', reason: expect.stringContaining('ENOTDIR') })
})
