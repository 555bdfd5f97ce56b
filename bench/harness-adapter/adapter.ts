/**
 * Rillflow under the neutral harness for job queues on PostgreSQL (hardbyte/postgresql-job-queue-benchmarking): one
 * process that produces and runs jobs, with one JSON record a line on stdout and everything else on stderr.
 *
 *     environment ─► store, runner ─► descriptor ─► producer · handler · samples, until SIGTERM
 *
 * A job is an event in a stream of its own, and the handler that runs because of it; only public calls are used. Beside
 * the metrics of the contract it reports how many jobs were acknowledged and how many runs of the handler there were,
 * which `benches/yardstick.ts` holds against the log.
 */
import { readFileSync } from 'node:fs'
import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { defineHandler, isRillflowError, openStore } from '../harness/rillflow.ts'
import manifest from './adapter.json' with { type: 'json' }

const number = (name: string, otherwise: number): number => Number(process.env[name] ?? otherwise)

const url = process.env.DATABASE_URL
if (url === undefined) throw new Error('DATABASE_URL must be set')
const scenario = process.env.SCENARIO ?? 'long_horizon'
if (scenario !== 'long_horizon') throw new Error(`There is no scenario "${scenario}", only "long_horizon".`)

const instance = number('BENCH_INSTANCE_ID', 0)
const producerRate = number('PRODUCER_RATE', 800)
const isToDepth = process.env.PRODUCER_MODE === 'depth-target'
const isPacedByHarness = process.env.PRODUCER_PACING === 'harness' && !isToDepth
const targetDepth = number('TARGET_DEPTH', 1_000)
const maxBatch = number('PRODUCER_BATCH_MAX', 128)
const tickMs = number('PRODUCER_BATCH_MS', 10)
const workers = number('WORKER_COUNT', 32)
const workMs = number('JOB_WORK_MS', 1)
const sampleEveryS = number('SAMPLE_EVERY_S', 5)
const padding = 'x'.repeat(Math.max(0, number('JOB_PAYLOAD_BYTES', 256) - 96))
const windowS = 30

/** Latencies of the last half minute in bounded memory: a histogram for each sample, merged when it is asked. */
class Latencies {
  #rows: RecordableHistogram[] = []
  #newest = this.#begin()

  note(ms: number): void {
    this.#newest.record(Math.max(1, Math.round(ms * 1_000)))
  }

  /** In milliseconds; begins the next sample. */
  take(): { p50: number; p95: number; p99: number } {
    const all = histogram()
    for (const row of this.#rows) all.add(row)
    const at = (percentile: number): number => (all.count === 0 ? 0 : all.percentile(percentile) / 1_000)
    this.#newest = this.#begin()
    return { p50: at(50), p95: at(95), p99: at(99) }
  }

  #begin(): RecordableHistogram {
    const row = histogram()
    this.#rows = [...this.#rows, row].slice(-Math.max(1, Math.ceil(windowS / sampleEveryS)))
    return row
  }
}

function histogram(): RecordableHistogram {
  return createHistogram({ lowest: 1, highest: 3_600_000_000, figures: 3 })
}

interface Job {
  readonly instance: number
  readonly seq: number
  readonly enqueuedAt: number
  readonly padding: string
}

const stopping = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopping.abort())

const produced = new Latencies()
const claimed = new Latencies()
const ended = new Latencies()
let [seq, acknowledged, runs, queueDepth, targetRate] = [0, 0, 0, 0, producerRate]

const job = defineHandler('job', {
  on: 'JobRequested',
  async run({ data }) {
    const { enqueuedAt } = data as Job
    claimed.note(Date.now() - enqueuedAt)
    runs++
    if (workMs > 0) await sleep(workMs)
    ended.note(Date.now() - enqueuedAt)
  },
})

const store = await openStore({ url, migrate: true, handlers: [job], logger: false })
const runner = await store.start({ concurrency: workers })
emit({
  ...{ kind: 'descriptor', system: manifest.system, event_tables: manifest.event_tables, extensions: [] },
  ...{ version: versionOfPackage(), schema_version: '1', db_name: new URL(url).pathname.slice(1) },
  started_at: new Date().toISOString(),
})
await Promise.all([isPacedByHarness ? produceOnRequest() : produce(), watchDepth(), sample()])
await runner.stop({ timeoutMs: 3_000 })
await store.close()
process.exit(0)

/** Credits the time that has really passed, so that a slow tick does not lower the offered rate. */
async function produce(): Promise<void> {
  let [credit, last] = [0, performance.now()]
  while (!stopping.signal.aborted) {
    targetRate = rateFile() ?? producerRate
    const now = performance.now()
    credit = Math.min(credit + ((now - last) * targetRate) / 1_000, 10 * maxBatch)
    last = now
    const count = Math.min(maxBatch, isToDepth ? targetDepth - queueDepth : Math.floor(credit))
    if (count > 0) {
      credit -= count
      await enqueue(count)
    }
    await sleep(tickMs)
  }
}

/** The harness says on stdin how many: `ENQUEUE 8`. */
async function produceOnRequest(): Promise<void> {
  const lines = createInterface({ input: process.stdin })
  stopping.signal.addEventListener('abort', () => lines.close())
  let owed = 0
  let sending: Promise<void> | undefined
  const send = async (): Promise<void> => {
    while (owed > 0 && !stopping.signal.aborted) {
      const count = Math.min(owed, maxBatch)
      owed -= count
      await enqueue(count)
    }
    sending = undefined
  }
  lines.on('line', line => {
    owed += Number(/^ENQUEUE (\d+)$/.exec(line.trim())?.[1] ?? 0)
    sending ??= send()
  })
  await new Promise<void>(resolve => stopping.signal.addEventListener('abort', () => resolve()))
  await sending
}

/** One append of as many streams. It is sent again by the store after a lost connection. */
async function enqueue(count: number): Promise<void> {
  const enqueuedAt = Date.now()
  const jobs = Array.from({ length: count }, () => {
    const data: Job = { instance, seq: ++seq, enqueuedAt, padding }
    return { stream: store.newId('job'), events: [{ type: 'JobRequested', data }] }
  })
  try {
    await store.events.appendMany(jobs, { signal: stopping.signal })
    acknowledged += count
    produced.note((Date.now() - enqueuedAt) / count)
  } catch (error) {
    if (!stopping.signal.aborted) console.error(`[rillflow] not acknowledged: ${String(error)}`)
    if (!isRillflowError(error)) throw error
  }
}

/** What is not begun yet: the events that are not dispatched, and the executions that are not claimed. */
async function watchDepth(): Promise<void> {
  while (!stopping.signal.aborted) {
    if (instance === 0) {
      try {
        const [{ lag }, stats] = await Promise.all([store.consumers.status('workflows'), store.workflows.stats()])
        queueDepth = lag + stats.executions.open.ready
      } catch (error) {
        console.error(`[rillflow] no depth: ${String(error)}`)
      }
    }
    await sleep(250)
  }
}

/** At the borders of the clock, so that samples of several processes belong together. */
async function sample(): Promise<void> {
  const everyMs = sampleEveryS * 1_000
  let [lastAcknowledged, lastRuns] = [0, 0]
  while (!stopping.signal.aborted) {
    await sleep(everyMs - (Date.now() % everyMs), undefined, { signal: stopping.signal }).catch(() => {})
    const t = new Date().toISOString()
    const say = (metric: string, value: number, window_s: number): void =>
      emit({
        t,
        system: manifest.system,
        kind: 'adapter',
        subject_kind: 'adapter',
        subject: '',
        metric,
        value,
        window_s,
      })
    for (const [name, latencies] of Object.entries({ producer: produced, claim: claimed, end_to_end: ended }))
      for (const [percentile, ms] of Object.entries(latencies.take())) say(`${name}_${percentile}_ms`, ms, windowS)
    say('enqueue_rate', (acknowledged - lastAcknowledged) / sampleEveryS, sampleEveryS)
    say('completion_rate', (runs - lastRuns) / sampleEveryS, sampleEveryS)
    say('jobs_acknowledged', acknowledged, 0)
    say('handler_runs', runs, 0)
    if (instance === 0) {
      say('queue_depth', queueDepth, 0)
      say('producer_target_rate', targetRate, 0)
    }
    ;[lastAcknowledged, lastRuns] = [acknowledged, runs]
  }
}

function rateFile(): number | undefined {
  const path = process.env.PRODUCER_RATE_CONTROL_FILE
  if (path === undefined) return undefined
  try {
    const rate = Number.parseFloat(readFileSync(path, 'utf8'))
    return Number.isFinite(rate) ? rate : undefined
  } catch {
    return undefined
  }
}

function versionOfPackage(): string {
  const text = readFileSync(`${import.meta.dirname}/../../package.json`, 'utf8')
  return `rillflow@${(JSON.parse(text) as { version: string }).version}`
}

function emit(record: object): void {
  process.stdout.write(`${JSON.stringify({ ...record, instance_id: instance })}\n`)
}
