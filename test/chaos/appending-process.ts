/**
 * A separate process with a store, for races between processes. The same file is the program of the child.
 *
 *     await using other = startAppending({ url, schema })
 *     await other.ask({ kind: 'race', … })
 */
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isRillflowError } from '../../src/core/errors.ts'
import { openStore, type StoreOptions } from '../../src/store.ts'
import { type AppendRecorder, type RecordedAppends, recordAppends } from '../../src/verify/record-appends.ts'
import { readRecord, writeRecord } from '../support/append-record.ts'
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

/** Appends one by one until it is killed. */
export interface Endless {
  readonly kind: 'endless'
  readonly callers: number
}

/** Appends of all kinds to many streams, until it gets `stop`. */
export interface Pour {
  readonly kind: 'pour'
  readonly callers: number
  readonly streams: number
  /** Of one append. */
  readonly maxEvents: number
  readonly seed: number
}

export type Task = Race | Storm | Pour | Endless | { readonly kind: 'stop' }

export interface Answer {
  /** Number of acknowledged appends, and of conflicts. */
  readonly stored: number
  readonly conflicts: number
  /** Other errors, by code and message. */
  readonly errors: string[]
}

export interface AppendingProcess extends AsyncDisposable {
  /** Resolves when its store is open. */
  readonly ready: Promise<void>
  /** Its appends so far, also after it was killed; until it is disposed of. */
  record(): RecordedAppends
  ask(task: Task): Promise<Answer>
  /** Ends what it pours, which is then answered. */
  stop(): void
  /** Stops the process where it is, and lets it go on. */
  pause(): void
  resume(): void
  kill(): Promise<void>
}

export function startAppending(options: StoreOptions): AppendingProcess {
  const child = forkProgram(import.meta.url)
  const name = `process ${child.pid}-${++started}`
  const file = join(tmpdir(), `rf-appends-${name.replace(' ', '-')}`)
  const answer = async <T>(): Promise<T> => (await once(child, 'message', { signal: gone.signal }))[0]
  const gone = new AbortController()
  child.on('exit', () => gone.abort(new Error('the process has ended')))
  child.send({ options, name, file } satisfies Start)
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
    record: () => readRecord(file),
    ask(task) {
      child.send(task)
      return answer<Answer>()
    },
    stop: () => void child.send({ kind: 'stop' } satisfies Task),
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    kill,
    async [Symbol.asyncDispose]() {
      await kill()
      rmSync(file, { force: true })
    },
  }
}
let started = 0

/** The first message to the child. */
interface Start {
  readonly options: StoreOptions
  readonly name: string
  readonly file: string
}

/** The work of the child; also for a store of this process. */
export async function perform(orders: AppendRecorder, task: Race | Storm): Promise<Answer> {
  const errors: string[] = []
  let [stored, conflicts] = [0, 0]
  const count = (append: Promise<unknown>): Promise<void> =>
    append.then(
      () => void stored++,
      error => {
        if (isRillflowError(error, 'version_conflict')) conflicts++
        else errors.push(`${error.code} ${error.message}`)
      },
    )
  if (task.kind === 'race') {
    const { stream, expected, callers } = task
    await Promise.all(times(callers, () => count(orders.append(stream, event, { expected }))))
    return { stored, conflicts, errors }
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
        await count(orders.appendMany(parts, key))
        if (random() < 0.05) await orders.read(hot())
      }
    }),
  )
  return { stored, conflicts, errors }
}

/** One caller in ten expects a version, one in ten has a key, one in ten appends to two streams, and one in fifty reads. */
async function pour(
  orders: AppendRecorder,
  { callers, streams, maxEvents, seed }: Pour,
  goOn: () => boolean,
): Promise<Answer> {
  const errors: string[] = []
  let [stored, conflicts] = [0, 0]
  await Promise.all(
    times(callers, async caller => {
      const random = seeded(seed * 1_000 + caller)
      const stream = (): string => `order-${Math.floor(random() * streams)}`
      for (let at = 0; goOn(); at++) {
        const own = stream()
        const kind = Math.floor(random() * 10)
        const events = times(1 + Math.floor(random() * maxEvents), () => event)
        try {
          const expected = kind === 0 ? (await orders.read(own)).length : kind === 1 ? ('exists' as const) : undefined
          const key = kind === 2 ? { idempotencyKey: `${seed}-${caller}-${at}` } : {}
          if (kind === 3) await orders.appendMany(appendsTo([...new Set([own, stream()])], events))
          else await orders.append(own, events, { expected, ...key })
          stored++
        } catch (error) {
          const { code, message } = error as { code?: string; message: string }
          if (code === 'version_conflict') conflicts++
          else if (!/^(outcome_unknown|connection_lost)$/.test(String(code))) errors.push(`${code} ${message}`)
        }
      }
    }),
  )
  return { stored, conflicts, errors }
}

function appendsTo<E>(streams: readonly string[], events: E): { stream: string; events: E }[] {
  return streams.map(stream => ({ stream, events }))
}

const event = { type: 'OrderPlaced', data: { total: 1 } }

async function appendEndlessly(orders: AppendRecorder, { callers }: Endless): Promise<never> {
  await Promise.all(
    times(callers, async caller => {
      for (let at = 0; ; at++) await orders.append(`endless-${caller}-${at % 10}`, [event, event])
    }),
  )
  throw new Error('unreachable')
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.once('message', async ({ options, name, file }: Start) => {
    const orders = recordAppends(await openStore(options), name, { onLine: writeRecord(file) })
    let isPouring = true
    process.on('message', async (task: Task) => {
      if (task.kind === 'stop') isPouring = false
      if (task.kind === 'stop') return
      if (task.kind === 'pour') return process.send!(await pour(orders, task, () => isPouring))
      if (task.kind === 'endless') return appendEndlessly(orders, task)
      return process.send!(await perform(orders, task))
    })
    process.on('disconnect', () => process.exit())
    process.send!({ open: true })
  })
}
