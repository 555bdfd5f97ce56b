/**
 * A separate process that opens a data folder, for tests of several processes.
 *
 *     const shop = startFolderProcess()
 *     await shop.ask('open', folder)        answers { pid } or { error }
 *
 * The same file is the program of the child.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Database } from '../../src/database/database.ts'
import { lockFolder } from '../../src/database/pglite/folder-lock.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import { sql } from '../../src/database/sql.ts'
import { forkProgram } from './program.ts'

export interface Answer {
  readonly pid?: number
  readonly error?: { readonly code: string; readonly pid?: number; readonly host?: string }
  /** The orders that are stored. */
  readonly orders?: number
}

export interface FolderProcess extends AsyncDisposable {
  readonly pid: number
  /** Number of acknowledged orders. */
  readonly acknowledged: number
  /**
   * `lock` only takes the lock, at the given time; `open` opens the store; `write` places orders until it fails or is
   * killed.
   */
  ask(task: 'wake' | 'lock' | 'open' | 'count' | 'write' | 'close', folder?: string, at?: number): Promise<Answer>
  kill(): Promise<void>
}

export function startFolderProcess(): FolderProcess {
  const child = forkProgram(import.meta.url)
  let acknowledged = 0
  child.on('message', message => {
    if (typeof message === 'number') acknowledged = message
  })
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }
  return {
    pid: child.pid as number,
    get acknowledged() {
      return acknowledged
    },
    ask(task, folder, at) {
      child.send({ task, folder, at })
      return nextAnswer(child)
    },
    kill,
    [Symbol.asyncDispose]: kill,
  }
}

function nextAnswer(child: ChildProcess): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const onExit = (): void => reject(new Error('the process ended without an answer'))
    const onMessage = (message: unknown): void => {
      if (typeof message === 'number') return
      child.off('exit', onExit)
      child.off('message', onMessage)
      resolve(message as Answer)
    }
    child.on('exit', onExit)
    child.on('message', onMessage)
  })
}

let database: Database | undefined

async function perform({ task, folder, at = 0 }: { task: string; folder: string; at?: number }): Promise<Answer> {
  switch (task) {
    case 'wake':
      return {}
    case 'lock':
      // All competitors wake at the same moment only if none of them sleeps.
      while (Date.now() < at);
      await lockFolder(folder)
      return { pid: process.pid }
    case 'open':
      database = await openPglite({ folder })
      await database.run(sql`create table if not exists orders (id integer primary key)`)
      return { pid: process.pid }
    case 'count':
      return { orders: Number((await database!.runArrays(sql`select count(*) from orders`))[0]![0]) }
    case 'write':
      for (let id = 1; ; id++) {
        await database!.run(sql`/* shop.place */ insert into orders (id) values (${id}::integer)`)
        process.send!(id)
      }
    default:
      await database?.close(1_000)
      return {}
  }
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.on('message', (message: Parameters<typeof perform>[0]) => {
    perform(message).then(
      answer => process.send!(answer),
      error => process.send!({ error: { ...error, message: error.message } }),
    )
  })
}
