/**
 * A separate process with a runner.
 *
 *     await using a = startWorker({ url, schema, consumers: ['totals'], leaseMs: 1_000 })
 *     await a.ready                      its runner has started
 *     await a.ask({ kind: 'holds' })     the consumers it holds, and more
 */
import { once } from 'node:events'
import { forkProgram } from '../../support/program.ts'
import type { Answer, Task, WorkerOptions } from './worker-program.ts'

export interface Worker extends AsyncDisposable {
  readonly pid: number
  readonly ready: Promise<void>
  ask(task: Task): Promise<Answer>
  /** Stops it in the middle of its work. */
  freeze(): void
  thaw(): void
  kill(): Promise<void>
}

export function startWorker(options: WorkerOptions): Worker {
  const child = forkProgram(new URL('worker-program.ts', import.meta.url))
  const gone = new AbortController()
  child.on('exit', () => gone.abort(new Error(`the worker ${options.name ?? ''} has ended`)))
  let asking: Promise<unknown> = Promise.resolve()
  const answer = async <T>(): Promise<T> => {
    const [message] = await once(child, 'message', { signal: gone.signal })
    if (message.error !== undefined) throw new Error(`in the worker ${options.name ?? ''}: ${message.error}`)
    return message as T
  }
  const askNext = <T>(message: object): Promise<T> => {
    const answered = asking.then(() => {
      gone.signal.throwIfAborted()
      child.send(message)
      return answer<T>()
    })
    asking = answered.catch(() => {})
    return answered
  }
  const ready = askNext<void>(options)
  ready.catch(() => {})
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }
  return {
    pid: child.pid!,
    ready,
    ask: task => askNext<Answer>(task),
    freeze: () => void child.kill('SIGSTOP'),
    thaw: () => void child.kill('SIGCONT'),
    kill,
    [Symbol.asyncDispose]: kill,
  }
}
