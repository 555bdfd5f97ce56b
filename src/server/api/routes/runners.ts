/** The runners of all processes. */
import { pageFields, type Route, route } from '../route.ts'

export const runnerRoutes: readonly Route[] = [
  route('GET /runners', {
    role: 'read',
    summary: 'The runners of all processes, with the consumers they hold',
    query: pageFields,
    cli: 'rillflow runners list',
    call: ({ store, query }) => store.runners.list(query),
  }),
]
