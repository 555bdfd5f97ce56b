/** Appends, or handlers that drain a backlog, in a process without a telemetry listener, or with OpenTelemetry. */
import { setTimeout as sleep } from 'node:timers/promises'
import { context } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import { connectOpenTelemetry } from '../../dist/integrations/otel.js'
import { defineHandler } from '../../src/workflows/handler.ts'
import { closedLoop } from '../harness/closed-loop.ts'
import { answer } from '../harness/program.ts'
import type { openStore, Store } from '../harness/rillflow.ts'
import { orderEvent, StreamCursor } from '../workloads/orders.ts'

export interface TracedStoreInput {
  readonly url: string
  /** Entry file of the package: as built, or changed. */
  readonly entry: string
  readonly isTraced: boolean
  readonly load: { readonly callers: number; readonly ms: number } | { readonly jobs: number }
}

export interface TracedStoreAnswer {
  readonly perSecond: number
  /** CPU time of this process for each append or job. */
  readonly microseconds: number
  /** Number of spans exported. */
  readonly spans: number
}

answer<TracedStoreInput>(async ({ url, entry, isTraced, load }): Promise<TracedStoreAnswer> => {
  const recording = isTraced ? recordSpans() : undefined
  const rillflow = (await import(entry)) as { openStore: typeof openStore }
  await using store = await rillflow.openStore({ url, migrate: true })
  const seen = 'jobs' in load ? await drain(store, load.jobs) : await append(store, load)
  return { ...seen, spans: (await recording?.end()) ?? 0 }
})

type Seen = Omit<TracedStoreAnswer, 'spans'>

async function append(store: Store, { callers, ms }: { callers: number; ms: number }): Promise<Seen> {
  const cursors = Array.from({ length: callers }, () => new StreamCursor())
  let made = 0
  const { value, cores } = await closedLoop({ callers, ms, warmUpMs: 1000 }, caller => {
    const { stream, version } = cursors[caller]!.next(1)
    return store.events.append(stream, orderEvent(made++), { expected: version })
  })
  return { perSecond: value, microseconds: (cores * 1e6) / value }
}

/** A smaller backlog is drained first: code that has not run yet is slow. */
async function drain(store: Store, jobs: number): Promise<Seen> {
  let handled = 0
  store.workflows.register(defineHandler('job', { on: 'JobRequested', run: () => void handled++ }))
  await workOff(store, 1000, () => handled >= 1000)
  const all = 1000 + jobs
  return workOff(store, jobs, () => handled >= all)
}

async function workOff(store: Store, jobs: number, isDone: () => boolean): Promise<Seen> {
  const publishing = Array.from({ length: jobs }, (_, n) => store.workflows.publish('JobRequested', orderEvent(n).data))
  await Promise.all(publishing)
  const [from, before] = [performance.now(), process.cpuUsage()]
  await using _ = await store.start({ only: ['handlers'] })
  while (!isDone()) await sleep(1)
  const { user, system } = process.cpuUsage(before)
  return { perSecond: jobs / ((performance.now() - from) / 1000), microseconds: (user + system) / jobs }
}

/** Set up as by an SDK, but with an exporter that only counts. */
function recordSpans(): { end(): Promise<number> } {
  let spans = 0
  const exporter: SpanExporter = {
    export(exported, done) {
      spans += exported.length
      done({ code: 0 })
    },
    shutdown: async () => {},
  }
  const processor = new BatchSpanProcessor(exporter, { maxQueueSize: 1_000_000 })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  const bridge = connectOpenTelemetry({ tracerProvider: new BasicTracerProvider({ spanProcessors: [processor] }) })
  return {
    async end() {
      bridge.stop()
      await processor.shutdown()
      return spans
    },
  }
}
