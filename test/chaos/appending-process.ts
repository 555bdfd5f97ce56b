/**
 * A separate process with a store, for races between processes. The same file is the program of the child.
 *
 *     await using other = startAppending({ url, schema })
 *     await other.ask({ kind: 'race', … })
 */
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { isRillflowError } from '../../src/core/errors.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { forkProgram } from '../support/program.ts'
import { seeded, times } from './seeded-random.ts'

/** All callers expect the same version, round after round. */
export interface Race {
  readonly kind: 'race'
  readonly stream: string
  readonly expected: number
  readonly callers: number
}

/** Groups of all kinds of appends to a few hot streams, continuously. */
export interface Storm {
  readonly kind: 'storm'
  readonly forMs: number
  readonly streams: number
  readonly callers: number
  readonly seed: number
}

/** Appends one by one until it is killed, and reports each acknowledged id. */
export interface Endless {
  readonly kind: 'endless'
  readonly callers: number
}

export type Task = Race | Storm | Endless

export interface Answer {
  /** Number of acknowledged appends, and of events per stream among them. */
  readonly stored: number
  readonly eventsByStream: Record<string, number>
  /** The actual versions in the conflicts. */
  readonly actuals: number[]
  /** Other errors, by code and message. */
  readonly errors: string[]
}

export interface AppendingProcess extends AsyncDisposable {
  /** Resolves when its store is open. */
  readonly ready: Promise<void>
  /** The ids that it has reported as stored. */
  readonly acknowledged: readonly string[]
  ask(task: Task): Promise<Answer>
  kill(): Promise<void>
}

export function startAppending(options: StoreOptions): AppendingProcess {
  const child = forkProgram(import.meta.url)
  const acknowledged: string[] = []
  child.on('message', message => {
    if (Array.isArray(message)) acknowledged.push(...message)
  })
  const answer = async <T>(): Promise<T> => {
    for (;;) {
      const [message] = await once(child, 'message', { signal: gone.signal })
      if (!Array.isArray(message)) return message as T
    }
  }
  const gone = new AbortController()
  child.on('exit', () => gone.abort(new Error('the process has ended')))
  child.send(options)
  const ready = answer<void>()
  ready.catch(() => {})
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }
  return {
    ready,
    acknowledged,
    ask(task) {
      child.send(task)
      return answer<Answer>()
    },
    kill,
    [Symbol.asyncDispose]: kill,
  }
}

/** The work of the child; also for a store of this process. */
export async function perform(store: Store, task: Race | Storm): Promise<Answer> {
  const answer: Answer = { stored: 0, eventsByStream: {}, actuals: [], errors: [] }
  const note = (streams: readonly string[]): void => {
    ;(answer as { stored: number }).stored++
    for (const stream of streams) answer.eventsByStream[stream] = (answer.eventsByStream[stream] ?? 0) + 1
  }
  const refused = (error: unknown): void => {
    if (isRillflowError(error, 'version_conflict')) answer.actuals.push((error as unknown as { actual: number }).actual)
    else answer.errors.push(`${(error as { code?: string }).code} ${(error as Error).message}`)
  }
  if (task.kind === 'race') {
    const { stream, expected } = task
    await Promise.all(
      times(task.callers, () => store.events.append(stream, event, { expected }).then(() => note([stream]), refused)),
    )
    return answer
  }
  const until = Date.now() + task.forMs
  await Promise.all(
    times(task.callers, async caller => {
      const random = seeded(task.seed * 1_000 + caller)
      const hot = (): string => `hot-${Math.floor(random() * task.streams)}`
      for (let at = 0; Date.now() < until; at++) {
        const streams = random() < 0.25 ? [...new Set([hot(), hot(), hot()])] : [hot()]
        // Streams that do not exist yet, the same ones in every process.
        if (random() < 0.1) streams.push(`new-${caller}-${at}`)
        const expected = random() < 0.3 ? Math.floor(random() * 50) : ('any' as const)
        const key = random() < 0.1 ? { idempotencyKey: `${task.seed}-${caller}-${at}` } : {}
        const parts = streams.map((stream, part) => ({
          stream,
          events: event,
          expected: part === 0 ? expected : ('any' as const),
        }))
        await store.events.appendMany(parts, key).then(() => note(streams), refused)
      }
    }),
  )
  return answer
}

const event = { type: 'OrderPlaced', data: { total: 1 } }

async function appendEndlessly(store: Store, { callers }: Endless): Promise<never> {
  await Promise.all(
    times(callers, async caller => {
      for (let at = 0; ; at++) {
        const { eventIds } = await store.events.append(`endless-${caller}-${at % 10}`, [event, event])
        process.send!(eventIds)
      }
    }),
  )
  throw new Error('unreachable')
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.once('message', async (options: StoreOptions) => {
    const store = await openStore(options)
    process.on('message', async (task: Task) => {
      if (task.kind === 'endless') return appendEndlessly(store, task)
      return process.send!(await perform(store, task))
    })
    process.on('disconnect', () => process.exit())
    process.send!({ open: true })
  })
}
