/** Dead letters: events that a consumer or handler failed on for good. */
import { InvalidOption } from '../../../core/errors.ts'
import { pageFields, type Route, route } from '../route.ts'

const states = ['open', 'retrying', 'parked', 'replayed', 'resolved'] as const
const done = { done: true } as const

const filter = {
  of: { kind: 'text', summary: 'Only those of this consumer or handler' },
  fingerprint: { kind: 'text', summary: 'Only failures that are alike' },
  type: { kind: 'text', summary: 'Only events of this type' },
  stream: { kind: 'text', summary: 'Only events of this stream' },
  correlationId: { kind: 'text', summary: 'Only those of this workflow' },
  reason: { kind: 'text', summary: 'Only those of handlers with this reason' },
  since: { kind: 'time', summary: 'Only those that failed at or after this time' },
} as const

const all = { kind: 'flag', summary: 'Needed if there is no other condition' } as const

export const deadLetterRoutes: readonly Route[] = [
  route('GET /dead-letters', {
    role: 'read',
    summary: 'Dead letters, the latest failure first, or by owner and position',
    query: {
      ...pageFields,
      ...filter,
      state: { kind: 'text', choices: states, summary: 'Default: all' },
      order: { kind: 'text', choices: ['newest', 'owner'], summary: 'Default: newest' },
    },
    cli: 'rillflow dead-letters list',
    async call({ store, query, redact }) {
      const { items, next } = await store.deadLetters.list({ ...query, order: query.order ?? 'newest' })
      return { items: items.map(each => ({ ...each, lastError: redact.error(each.lastError) })), next }
    },
  }),
  route('GET /dead-letters/groups', {
    role: 'read',
    summary: 'Failures that are alike together, the largest group first',
    query: {
      ...pageFields,
      of: { kind: 'text', summary: 'Only those of this handler' },
      state: { kind: 'text', choices: states, summary: 'Default: open' },
    },
    cli: 'rillflow dead-letters groups',
    async call({ store, query, redact }) {
      const { items, next } = await store.deadLetters.groups(query)
      return { items: items.map(each => ({ ...each, latestError: redact.error(each.latestError) })), next }
    },
  }),
  route('GET /dead-letters/stats', {
    role: 'read',
    summary: 'How many there are in each state, by owner; 10 000 stands for that many or more',
    query: pageFields,
    cli: 'rillflow dead-letters stats',
    call: ({ store, query }) => store.deadLetters.stats(query),
  }),
  route('POST /dead-letters/retry', {
    role: 'operate',
    summary: 'Requests retries of all open ones that match',
    body: { ...filter, all, perSecond: { kind: 'whole', min: 1, summary: 'How many in a second. Default: 50' } },
    cli: 'rillflow dead-letters retry {of} --all',
    call({ store, body: { all: isAll, perSecond, ...conditions } }) {
      refuseEverything(conditions, isAll)
      return store.deadLetters.retryAll(conditions, { perSecond })
    },
  }),
  route('POST /dead-letters/resolve', {
    role: 'operate',
    summary: 'Closes all open ones that match, at most 10 000, without applying their events',
    body: { ...filter, all, note: { kind: 'text', required: true, summary: 'Why' } },
    cli: 'rillflow dead-letters resolve {of} --all --note {note}',
    call({ store, body: { all: isAll, note, ...conditions } }) {
      refuseEverything(conditions, isAll)
      return store.deadLetters.resolveAll(conditions, { note })
    },
  }),
  route('GET /dead-letters/:owner/:event', {
    role: 'read',
    summary: 'One with its event as stored, its errors and its history',
    cli: 'rillflow dead-letters show {owner} {event}',
    async call({ store, parameters, redact }) {
      const found = await store.deadLetters.show(parameters.owner, parameters.event)
      return {
        ...found,
        event: found.event === undefined ? undefined : redact.event(found.event),
        errors: found.errors.map(redact.error),
        lastError: redact.error(found.lastError),
      }
    },
  }),
  route('POST /dead-letters/:owner/:event/retry', {
    role: 'operate',
    summary: 'Requests a retry; a handler can be given other data than the event has',
    body: { data: { kind: 'json', summary: 'The data to retry with. Default: that of the event' } },
    cli: 'rillflow dead-letters retry {owner} {event}',
    call: ({ store, parameters, body }) =>
      store.deadLetters.retry(parameters.owner, parameters.event, 'data' in body ? { data: body.data } : {}),
  }),
  route('POST /dead-letters/:owner/:event/resolve', {
    role: 'operate',
    summary: 'Closes an open one without applying its event',
    body: { note: { kind: 'text', required: true, summary: 'Why' } },
    cli: 'rillflow dead-letters resolve {owner} {event} --note {note}',
    async call({ store, parameters, body }) {
      await store.deadLetters.resolve(parameters.owner, parameters.event, body)
      return done
    },
  }),
  route('DELETE /dead-letters/:owner/:event', {
    role: 'admin',
    summary: 'Deletes it',
    cli: 'rillflow dead-letters delete {owner} {event} --yes',
    async call({ store, parameters }) {
      await store.deadLetters.delete(parameters.owner, parameters.event)
      return done
    },
  }),
]

/** An empty filter is for all of them, so it has to be said. */
function refuseEverything(conditions: object, isAll: boolean | undefined): void {
  if (Object.values(conditions).some(each => each !== undefined) || isAll === true) return
  throw new InvalidOption({
    option: 'all',
    reason: 'Without a condition this is for all dead letters. Give a condition, or "all": true.',
  })
}
