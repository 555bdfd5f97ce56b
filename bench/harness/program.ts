/**
 * Programs that run in their own process: contestants that compete, and those whose memory is measured.
 *
 * A program is a file in `programs/` that calls `answer`: it receives one message, sends one back and exits.
 */
import { fork } from 'node:child_process'

const limitMs = 300_000

export interface ProgramOptions {
  /** Path of a Node that runs TypeScript without a loader. Default: the Node of this process, with its loader. */
  readonly node?: string
  /** Variables that differ from those of this process. */
  readonly env?: Readonly<Record<string, string>>
}

export function runProgram<Answer>(name: string, input: object, { node, env }: ProgramOptions = {}): Promise<Answer> {
  const on = node === undefined ? {} : { execPath: node, execArgv: [] }
  const child = fork(`${import.meta.dirname}/../programs/${name}.ts`, {
    ...{ serialization: 'advanced', env: { ...process.env, ...env } },
    ...on,
  })
  return new Promise<Answer>((resolve, reject) => {
    let given: { answer?: Answer; error?: string } | undefined
    const limit = setTimeout(() => child.kill('SIGKILL'), limitMs)
    child.once('error', reject)
    child.once('message', message => {
      given = message as typeof given
    })
    // Resolve after the process has exited, so that it takes nothing from the next run.
    child.once('close', (code, signal) => {
      clearTimeout(limit)
      if (given === undefined) reject(new Error(`${name} ended without an answer (${signal ?? code})`))
      else if (given.error !== undefined) reject(new Error(given.error))
      else resolve(given.answer as Answer)
    })
    child.send(input)
  })
}

export function answer<Input>(work: (input: Input) => Promise<unknown>): void {
  const reply = (message: object): void => void process.send!(message, () => process.disconnect())
  process.once('message', input => {
    work(input as Input).then(
      result => reply({ answer: result }),
      error => reply({ error: error.stack ?? String(error) }),
    )
  })
}
