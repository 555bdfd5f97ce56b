/** States of a stream over time; and why an event is not processed, or a workflow not settled. */
import type { Explanation } from '../../../upkeep/explain/explain.ts'
import type { Redaction } from '../../access/redact.ts'
import { RequestRefused } from '../answer.ts'
import { type Route, route } from '../route.ts'

const of = {
  kind: 'text',
  required: true,
  summary: 'The aggregate or document projection that folds the stream',
} as const

export const stateRoutes: readonly Route[] = [
  route('GET /states', {
    role: 'read',
    summary: 'The aggregates and document projections of this process that fold a stream',
    call: async ({ store }) => ({ items: store.states.list() }),
  }),
  route('GET /streams/:stream/states', {
    role: 'read',
    summary: 'The state of a stream at a version or a time; without one, now',
    query: {
      of,
      version: { kind: 'whole', min: 0, summary: 'The version' },
      at: { kind: 'time', summary: 'The time' },
    },
    cli: 'rillflow streams state {stream} --of {of}',
    async call({ store, parameters: { stream }, query, redact }) {
      const found = await store.states.at(query.of, stream, { version: query.version, at: query.at })
      return { ...found, state: redact.document(found.state, query.of) }
    },
  }),
  route('GET /streams/:stream/states/steps', {
    role: 'read',
    summary: 'The states after each event from one version to another, at most 200',
    query: {
      of,
      from: { kind: 'whole', min: 1, required: true, summary: 'The first version' },
      to: { kind: 'whole', min: 1, required: true, summary: 'The last version' },
    },
    cli: 'rillflow streams steps {stream} --of {of}',
    async call({ store, parameters: { stream }, query: { of: name, from, to }, redact }) {
      const steps = await store.states.steps(name, stream, { from, to })
      return { items: steps.map(step => ({ ...step, state: redact.document(step.state, name) })) }
    },
  }),
  route('GET /streams/:stream/states/blame', {
    role: 'read',
    summary: 'For each field of the state, the event that last changed it',
    query: { of, version: { kind: 'whole', min: 0, summary: 'Default: the newest' } },
    cli: 'rillflow streams blame {stream} --of {of}',
    async call({ store, parameters: { stream }, query: { of: name, version }, redact }) {
      const blamed = await store.states.blame(name, stream, { version })
      return { ...blamed, state: redact.document(blamed.state, name) }
    },
  }),
  route('GET /events/:id/why', {
    role: 'read',
    summary: 'Why the event is not processed yet: a verdict for each consumer and handler',
    cli: 'rillflow events why {id}',
    async call({ store, parameters, redact }) {
      const found = await store.explain(parameters.id)
      if (found === undefined) throw new RequestRefused(404, 'event_not_found', 'The log has no such event.')
      return shown(found, redact)
    },
  }),
  route('GET /workflows/:id/why', {
    role: 'read',
    summary: 'Why the workflow is not settled: a verdict for each execution that is open',
    cli: 'rillflow workflows why {id}',
    async call({ store, parameters, redact }) {
      return shown((await store.explain({ workflow: parameters.id }))!, redact)
    },
  }),
]

function shown(found: Explanation, redact: Redaction): Explanation {
  const verdicts = found.verdicts.map(each => ({ ...each, ...redact.error({ message: each.message }) }))
  return { ...found, verdicts, event: found.event === undefined ? undefined : redact.event(found.event) }
}
