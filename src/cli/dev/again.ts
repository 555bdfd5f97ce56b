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
import { dirname } from 'node:path'
import { onAbort } from '../../core/lifecycle.ts'
import type { ExitCode, Invocation } from '../command.ts'
import { type Order, parentMark } from '../interrupt.ts'
import { watchCode } from './watch.ts'

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
