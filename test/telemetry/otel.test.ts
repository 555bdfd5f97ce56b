import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { deadLetter } from '../../src/consumers/run/policy.ts'
import { connectOpenTelemetry } from '../../src/integrations/otel.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { openShop, outcome, placed, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()))
afterAll(() => context.disable())

interface Traced extends Shop {
  /** The spans of this name that have ended, in that order. */
  spansOf(name: string): ReadableSpan[]
  inRequest<T>(work: () => Promise<T>): Promise<{ value: T; traceId: string; spanId: string }>
}

async function openTraced(): Promise<Traced> {
  const shop = await openShop()
  const exporter = new InMemorySpanExporter()
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const bridge = connectOpenTelemetry({ tracerProvider, schema: shop.schema })
  onTestFinished(() => bridge.stop())
  return {
    ...shop,
    spansOf: name => exporter.getFinishedSpans().filter(span => span.name === name),
    inRequest: async work => {
      const request = tracerProvider.getTracer('test').startSpan('request')
      const value = await context.with(trace.setSpan(context.active(), request), work)
      request.end()
      return { value, traceId: request.spanContext().traceId, spanId: request.spanContext().spanId }
    },
  }
}

function traceparentOf({ traceId, spanId }: { traceId: string; spanId: string }): string {
  return `00-${traceId}-${spanId}-01`
}

test('an append is a child of the request, and its events carry its context', async () => {
  const { store, spansOf, inRequest } = await openTraced()

  const { traceId, spanId } = await inRequest(() => store.events.append('order-1', [placed(), placed()]))

  const [append] = spansOf('events.append')
  expect(append).toMatchObject({ kind: SpanKind.PRODUCER, parentSpanContext: { spanId }, status: { code: 0 } })
  expect(append!.spanContext().traceId).toBe(traceId)
  expect(append!.attributes).toMatchObject({ 'rillflow.events': 2, 'rillflow.streams': ['order-1'] })
  const events = await store.events.read('order-1').toArray()
  const traceparent = traceparentOf(append!.spanContext())
  expect(events.map(({ headers }) => headers)).toEqual([{ traceparent }, { traceparent }])
})

test('the trace goes from the append through projection and handler to the emitted event and its handler', async () => {
  const { store, spansOf, inRequest } = await openTraced()
  const flows = store.workflows
  await store.projections.register(
    defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } }),
  )
  flows.register(
    defineHandler('charge', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  let active: string | undefined
  flows.register(
    defineHandler('ship', {
      on: 'OrderPaid',
      run: async () => {
        active = trace.getActiveSpan()?.spanContext().spanId
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const { value: flow, traceId } = await inRequest(() => flows.publish('OrderPlaced', { total: 1 }))
  await flow.waitUntilSettled({ timeoutMs: 60_000 })
  await store.projections.runUntilIdle()
  await waitUntil(() => spansOf('workflows.run ship').length > 0)

  const [append] = spansOf('events.append')
  const [batch] = spansOf('consumers.batch totals')
  const [charge] = spansOf('workflows.run charge')
  const [emission] = spansOf('workflows.emit charge')
  const [ship] = spansOf('workflows.run ship')
  const all = [append, batch, charge, emission, ship]
  expect(all.map(span => span?.spanContext().traceId)).toEqual(all.map(() => traceId))
  expect(all.map(span => span?.attributes['rillflow.correlation_id'])).toEqual(all.map(() => flow.correlationId))
  const parents = [batch, charge, emission, ship].map(span => span?.parentSpanContext?.spanId)
  const { spanId: appendId } = append!.spanContext()
  expect(parents).toEqual([appendId, appendId, charge!.spanContext().spanId, emission!.spanContext().spanId])
  expect(active).toBe(ship!.spanContext().spanId)
  const [paid] = await store.events.readAll({ types: ['OrderPaid'] }).toArray()
  expect(paid!.headers.traceparent).toBe(traceparentOf(emission!.spanContext()))
})

test('a batch of events from several traces has a link to each, and its own trace', async () => {
  const { store, spansOf, inRequest } = await openTraced()
  await store.projections.register(
    defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } }),
  )
  const first = await inRequest(() => store.events.append('order-1', placed()))
  const second = await inRequest(() => store.events.append('order-2', placed()))

  await store.projections.runUntilIdle()

  const [batch] = spansOf('consumers.batch totals')
  expect(batch!.links.map(link => link.context.traceId)).toEqual([first.traceId, second.traceId])
  expect(batch!.parentSpanContext).toBeUndefined()
  expect([first.traceId, second.traceId]).not.toContain(batch!.spanContext().traceId)
})

test('an inline projection is part of its append; a session passes its context on', async () => {
  const { store, spansOf, inRequest } = await openTraced()
  const totals = defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } })
  await store.projections.register({ ...totals, lifecycle: 'inline' })

  const { traceId } = await inRequest(async () => {
    const session = store.session()
    session.events.append('order-1', placed())
    await session.save()
  })

  const [save] = spansOf('sessions.save')
  const [inline] = spansOf('projections.inline totals')
  expect([save, inline].map(span => span?.spanContext().traceId)).toEqual([traceId, traceId])
  const [event] = await store.events.read('order-1').toArray()
  expect(event!.headers.traceparent).toBe(traceparentOf(save!.spanContext()))
  expect(inline!.parentSpanContext?.spanId).toBe(save!.spanContext().spanId)
})

test('failures are marked as failed: a refused append, a handler that throws, a subscriber that throws', async () => {
  const { store, spansOf } = await openTraced()
  store.workflows.register(
    defineHandler('charge', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        throw new Error('declined')
      },
    }),
  )
  await using worker = store.workflows.worker()
  await worker.start()
  await using subscription = store.subscribe('mailer', {
    onEvent: () => {
      throw new Error('bounced')
    },
  })

  await outcome(store.events.append('order-1', placed(), { expected: 9 }))
  await store.workflows.publish('OrderPlaced', { total: 1 })
  await waitUntil(
    () => spansOf('workflows.run charge').length > 0 && spansOf('subscriptions.deliver mailer').length > 0,
  )
  await subscription.stop()

  const failed = ['events.append', 'workflows.run charge', 'subscriptions.deliver mailer'].map(name => spansOf(name)[0])
  expect(failed.map(span => span?.status.code)).toEqual(failed.map(() => SpanStatusCode.ERROR))
  expect(failed.slice(1).map(span => span?.status.message)).toEqual(['declined', 'bounced'])
  expect(failed.map(span => span?.events.map(event => event.name))).toEqual(failed.map(() => ['exception']))
})

test('a loop over a subscription has a span for each event, from its delivery until the loop returns', async () => {
  const { store, spansOf, inRequest } = await openTraced()
  const { traceId } = await inRequest(() => store.events.append('order-1', placed()))
  await store.events.append('order-2', placed())
  const ended: number[] = []

  for await (const event of store.subscribe('mailer')) {
    ended.push(spansOf('subscriptions.deliver mailer').length)
    if (event.stream === 'order-2') break
  }

  const [first, second] = spansOf('subscriptions.deliver mailer')
  expect(ended).toEqual([0, 1])
  expect(first).toMatchObject({ kind: SpanKind.CONSUMER, status: { code: SpanStatusCode.UNSET } })
  expect(first!.spanContext().traceId).toBe(traceId)
  expect(first!.attributes).toMatchObject({ 'rillflow.deliveries': 1, 'rillflow.is_replay': false })
  expect(second).toBeDefined()
})

test('a run of a schedule begins a new trace, and its events carry it on', async () => {
  const { store, spansOf, inRequest } = await openTraced()
  const flows = store.workflows
  let isOpen = true
  flows.register(
    defineSchedule('nightly', {
      events: shopEvents,
      everyMs: 86_400_000,
      run: ({ emit }) => {
        if (!isOpen) throw new Error('no till')
        return emit('OrderPlaced', { total: 1 })
      },
    }),
  )
  flows.register(defineHandler('charge', { on: 'OrderPlaced', run: () => {} }))
  await using worker = flows.worker()
  const { traceId } = await inRequest(() => worker.start())

  await flows.schedules.trigger('nightly')
  await waitUntil(() => spansOf('workflows.run charge').length > 0)
  isOpen = false
  await flows.schedules.trigger('nightly')
  await waitUntil(() => spansOf('workflows.schedule nightly').length === 2)

  const [run, failed] = spansOf('workflows.schedule nightly')
  const [charge] = spansOf('workflows.run charge')
  expect(run!.parentSpanContext).toBeUndefined()
  expect(run!.spanContext().traceId).not.toBe(traceId)
  expect(run!.attributes).toMatchObject({ 'rillflow.outcome': 'completed', 'rillflow.is_manual': true })
  expect(charge!.parentSpanContext?.spanId).toBe(run!.spanContext().spanId)
  expect(charge!.attributes['rillflow.correlation_id']).toBe(run!.attributes['rillflow.correlation_id'])
  expect(failed!.status).toEqual({ code: SpanStatusCode.ERROR, message: 'no till' })
})

test('a retried dead letter continues the trace of its event', async () => {
  const { store, spansOf, inRequest } = await openTraced()
  let isBroken = true
  const handle = async (): Promise<void> => {
    if (isBroken) throw new Error('declined')
  }
  const policy = deadLetter({ retries: 0 })
  await store.projections.register(
    defineProjection('totals', { events: shopEvents, on: { OrderPlaced: handle }, policy }),
  )
  const { traceId } = await inRequest(() => store.events.append('order-1', placed()))
  await store.projections.runUntilIdle()
  await using daemon = store.daemon()
  await daemon.start()

  await store.deadLetters.retry('totals', {})
  await waitUntil(() => spansOf('consumers.replay totals').length === 1)
  // The dead letter is opened again after the attempt has ended.
  await waitUntil(async () => (await store.deadLetters.list({ state: 'open' })).length === 1)
  isBroken = false
  await store.deadLetters.retry('totals', {})
  await waitUntil(() => spansOf('consumers.replay totals').length === 2)

  const replays = spansOf('consumers.replay totals')
  expect(replays.map(span => span.status.code)).toEqual([SpanStatusCode.ERROR, SpanStatusCode.UNSET])
  expect(replays.map(span => span.attributes['rillflow.attempt'])).toEqual([2, 3])
  expect(replays.map(span => span.spanContext().traceId)).toEqual([traceId, traceId])
})

test('without a bridge the context of an event is still passed on to emitted events', async () => {
  const { store } = await openShop()
  store.workflows.register(
    defineHandler('charge', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  await using worker = store.workflows.worker()
  await worker.start()
  const headers = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', tracestate: 'shop=1' }

  await store.events.append('order-1', placed(1, { headers, correlationId: 'flow-1' }))

  await waitUntil(async () => (await store.events.readAll({ types: ['OrderPaid'] }).toArray()).length > 0)
  const [paid] = await store.events.readAll({ types: ['OrderPaid'] }).toArray()
  expect(paid!.headers).toMatchObject(headers)
})

test('invalid trace headers cause no error, and own headers are kept', async () => {
  const { store, spansOf } = await openTraced()
  await store.projections.register(
    defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } }),
  )
  await store.events.append('order-1', placed(1, { headers: { traceparent: 'nonsense' } }))

  await store.projections.runUntilIdle()

  const [event] = await store.events.read('order-1').toArray()
  expect(event!.headers).toEqual({ traceparent: 'nonsense' })
  expect(spansOf('consumers.batch totals')).toHaveLength(1)
})
