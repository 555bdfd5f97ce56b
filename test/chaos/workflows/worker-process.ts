/**
 * A separate process with a worker.
 *
 *     await using a = startProcess({ url, schema, name: 'a', seed, leaseMs })
 *     await a.ready                    its worker has started
 *     a.freeze(); a.thaw()             it is stopped in the middle of its work, and continues
 */
import { once } from 'node:events'
import { forkProgram } from '../../support/program.ts'
import type { Answer, ProcessOptions, Task } from './worker-program.ts'

export interface WorkerProcess extends AsyncDisposable {
  readonly name: string
  readonly ready: Promise<void>
  ask(task: Task): Promise<Answer>
  freeze(): void
  thaw(): void
  kill(): Promise<void>
}

export function startProcess(options: ProcessOptions): WorkerProcess {
  const { name } = options
  const child = forkProgram(new URL('worker-program.ts', import.meta.url))
  const gone = new AbortController()
  child.on('exit', () => gone.abort(new Error(`the process ${name} has ended`)))
  let asking: Promise<unknown> = Promise.resolve()
  const send = <T>(message: object): Promise<T> => {
    const answered = asking.then(async () => {
      gone.signal.throwIfAborted()
      child.send(message)
      const [answer] = await once(child, 'message', { signal: gone.signal })
      if (answer.error !== undefined) throw new Error(`in the process ${name}: ${answer.error}`)
      return answer as T
    })
    asking = answered.catch(() => {})
    return answered
  }
  const ready = send<void>(options)
  ready.catch(() => {})
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }
  return {
    name,
    ready,
    ask: task => send<Answer>(task),
    freeze: () => void child.kill('SIGSTOP'),
    thaw: () => void child.kill('SIGCONT'),
    kill,
    [Symbol.asyncDispose]: kill,
  }
}
