/**
 * Runs `rillflow dev` in a child process and starts it again when the code changes. A process of its own is needed because Node
 * never loads a module twice.
 *
 *     code changes ──► child ends its running work and exits ──► the next child starts     one at a time: old code never
 *                                                                                          runs together with new code
 *     Ctrl-C       ──► child ends its running work and exits ──► so does this process      a second Ctrl-C kills both
 *
 * Guarantees:
 * - If the new code fails, the error is printed and the next change is awaited.
 * - A child outlives this process only until its running work has ended.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { type Dirent, type FSWatcher, readdirSync, watch } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { onAbort } from '../../../core/abort.ts'
import type { ExitCode, Invocation } from '../../command.ts'
import { type Order, parentMark } from '../../interrupt.ts'

export async function restartOnChange(
  config: string,
  { out, signal }: Pick<Invocation, 'out' | 'signal'>,
): Promise<ExitCode> {
  const interrupted = new Promise<void>(resolve => onAbort(signal, resolve))
  for (let isFirst = true; ; isFirst = false) {
    // The watch begins before the child reads the code, so that no change is missed.
    const code = watchCode(dirname(config))
    if (isFirst && code.failure) out.note(`Some changes may not be noticed: ${code.failure.message}`)
    const child = startChild()
    try {
      await Promise.race([child.ended, code.changed, interrupted])
      const wasRunning = child.isRunning()
      if (wasRunning && !signal.aborted) printChange(await code.changed)
      if (wasRunning) child.send(signal.aborted ? 'end' : 'start again')
      const exitCode = await child.ended
      if (signal.aborted) return exitCode ?? 130
      if (wasRunning) continue
      if (isFirst || exitCode === 0) return exitCode ?? 1
      out.note('Waiting for a change …')
      await Promise.race([code.changed, interrupted])
      if (signal.aborted) return 0
      printChange(await code.changed)
    } finally {
      code.close()
      child.release()
    }
  }

  function printChange(file: string): void {
    out.note(`${file} has changed: starting again`)
  }
}

interface Child {
  /** The exit code; undefined if a signal has ended the child. */
  readonly ended: Promise<ExitCode | undefined>
  isRunning(): boolean
  send(order: Order): void
  release(): void
}

function startChild(): Child {
  const [, program, ...words] = process.argv
  const child = fork(program!, words, { env: { ...process.env, [parentMark]: '1' }, stdio: 'inherit' })
  const kill = (): void => void child.kill('SIGKILL')
  process.on('exit', kill)
  return {
    ended: once(child, 'exit').then(([code]) => (code as ExitCode | null) ?? undefined),
    isRunning: () => isRunning(child),
    // Fails if the child has just ended, which is fine.
    send: order => void child.send(order, () => {}),
    release: () => void process.off('exit', kill),
  }
}

function isRunning({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null
}

interface CodeWatch {
  /** The file that changed first. It resolves a moment later, because editors and checkouts write more than once. */
  readonly changed: Promise<string>
  /** Why some folders are not watched. */
  readonly failure: Error | undefined
  close(): void
}

const momentMs = 100
/** Each watch takes resources of the system. If there are more folders, only the nearest are watched. */
const maxFolders = 500

/** Watches the code in a folder and in the folders below it. */
function watchCode(folder: string): CodeWatch {
  const watchers: FSWatcher[] = []
  let timer: NodeJS.Timeout | undefined
  let failure: Error | undefined
  const changed = new Promise<string>(resolve => {
    try {
      for (const path of foldersBelow(folder)) {
        const watcher = watch(path, (_, name) => {
          if (name !== null && isCode(name)) timer ??= setTimeout(resolve, momentMs, relative('', join(path, name)))
        })
        // The folder was removed. The removal of its files has been noticed already.
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
      for (const watcher of watchers) watcher.close()
    },
  }
}

function isCode(name: string): boolean {
  return !name.startsWith('.') && /\.([cm]?[jt]s|json)$/.test(name)
}

/** The nearest first. Folders with installed, built or hidden files are left out; the embedded store is in a hidden one. */
function foldersBelow(folder: string): string[] {
  const folders = [folder]
  for (const path of folders) {
    if (folders.length >= maxFolders) break
    for (const entry of entriesOf(path))
      if (entry.isDirectory() && !/^(\.|node_modules$|dist$)/.test(entry.name)) folders.push(join(path, entry.name))
  }
  return folders.slice(0, maxFolders)
}

/** Empty for a folder that was removed meanwhile or cannot be read. */
function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}
