/** The events of the log. */
import { RequestRefused } from '../answer.ts'
import { type Route, route } from '../route.ts'

export const eventRoutes: readonly Route[] = [
  route('GET /events/:id', {
    role: 'read',
    summary: 'One event',
    cli: 'rillflow events show {id}',
    async call({ store, parameters, redact }) {
      const event = await store.events.get(parameters.id)
      if (event === undefined) throw new RequestRefused(404, 'event_not_found', 'The log has no event with this id.')
      return redact.event(event)
    },
  }),
]
