/**
 * Runs `dev` as a process of its own, and starts it again when the code changes: Node keeps a module that it has loaded.
 *
 *     code changes ─► child drains and ends ─► the next one starts       one at a time, as one process has an embedded store
 *     Ctrl-C       ─► child drains and ends ─► so do we, with its code   a second one takes the child along at once
 *
 * Guarantees: what fails after a change is told and waits for the next change. A child never outlives this process for
 * longer than it takes to drain.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { type Dirent, type FSWatcher, readdirSync, watch } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { onAbort } from '../../../core/lifecycle.ts'
import type { ExitCode, Invocation } from '../../command.ts'
import { type Order, parentMark } from '../../interrupt.ts'

export async function runAgainOnChange(
  config: string,
  { out, signal }: Pick<Invocation, 'out' | 'signal'>,
): Promise<ExitCode> {
  const interrupted = new Promise<void>(resolve => onAbort(signal, resolve))
  for (let isFirst = true; ; isFirst = false) {
    // Before the child reads the code, so that no change falls in between.
    const code = watchCode(dirname(config))
    if (isFirst && code.failure) out.note(`Changes may go unnoticed: ${code.failure.message}`)
    const child = startChild()
    try {
      await Promise.race([child.ended, code.changed, interrupted])
      const wasRunning = child.isRunning()
      if (wasRunning && !signal.aborted) tellChange(await code.changed)
      if (wasRunning) child.tell(signal.aborted ? 'end' : 'start again')
      const exitCode = await child.ended
      if (signal.aborted) return exitCode ?? 130
      if (wasRunning) continue
      if (isFirst || exitCode === 0) return exitCode ?? 1
      out.note('Waiting for a change …')
      await Promise.race([code.changed, interrupted])
      if (signal.aborted) return 0
      tellChange(await code.changed)
    } finally {
      code.close()
      child.release()
    }
  }

  function tellChange(name: string): void {
    out.note(`${name} has changed: starting again`)
  }
}

interface Child {
  /** Undefined if a signal has ended it. */
  readonly ended: Promise<ExitCode | undefined>
  isRunning(): boolean
  tell(order: Order): void
  release(): void
}

function startChild(): Child {
  const [, program, ...words] = process.argv
  const child = fork(program!, words, { env: { ...process.env, [parentMark]: '1' }, stdio: 'inherit' })
  const takeAlong = (): void => void child.kill('SIGKILL')
  process.on('exit', takeAlong)
  return {
    ended: once(child, 'exit').then(([code]) => (code as ExitCode | null) ?? undefined),
    isRunning: () => isRunning(child),
    // It may have ended just now.
    tell: order => void child.send(order, () => {}),
    release: () => void process.off('exit', takeAlong),
  }
}

function isRunning({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null
}

// Tells when code in a folder changes, or in one below it.

export interface CodeWatch {
  /** The file, from here; once, a moment after its first change, as an editor or a checkout writes more than once. */
  readonly changed: Promise<string>
  /** Why some of it is not watched. */
  readonly failure: Error | undefined
  close(): void
}

const momentMs = 100
/** A watch is a resource of the system. Whoever has more folders than that has those that are nearest watched. */
const maxFolders = 500

export function watchCode(folder: string): CodeWatch {
  const watchers: FSWatcher[] = []
  let timer: NodeJS.Timeout | undefined
  let failure: Error | undefined
  const changed = new Promise<string>(resolve => {
    try {
      for (const each of foldersOf(folder)) {
        const watcher = watch(each, (_, name) => {
          if (name !== null && isCode(name)) timer ??= setTimeout(resolve, momentMs, relative('', join(each, name)))
        })
        // A folder that is removed; its files were told of.
        watcher.on('error', () => watcher.close())
        watchers.push(watcher)
      }
    } catch (error) {
      failure = error as Error
    }
  })
  return {
    changed,
    failure,
    close() {
      clearTimeout(timer)
      for (const each of watchers) each.close()
    },
  }
}

function isCode(name: string): boolean {
  return !name.startsWith('.') && /\.([cm]?[jt]s|json)$/.test(name)
}

/** The nearest first; not what is installed, built or hidden, as the store's own is. */
function foldersOf(folder: string): string[] {
  const found = [folder]
  for (const each of found) {
    if (found.length >= maxFolders) break
    for (const entry of entriesOf(each))
      if (entry.isDirectory() && !/^(\.|node_modules$|dist$)/.test(entry.name)) found.push(join(each, entry.name))
  }
  return found.slice(0, maxFolders)
}

/** None of a folder that is gone by now, or is not ours to read. */
function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}
