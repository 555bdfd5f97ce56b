/** The table of all routes, a file a noun. The order matters where a word and a parameter stand in the same place. */
import type { Route } from '../route.ts'
import { collectionRoutes } from './collections.ts'
import { consumerRoutes } from './consumers.ts'
import { deadLetterRoutes } from './dead-letters.ts'
import { eventRoutes } from './events.ts'
import { handlerRoutes } from './handlers.ts'
import { liveRoutes } from './live.ts'
import { runnerRoutes } from './runners.ts'
import { searchRoutes } from './search.ts'
import { stateRoutes } from './states.ts'
import { storeRoutes } from './store.ts'
import { streamRoutes } from './streams.ts'
import { tenantRoutes } from './tenants.ts'
import { workflowRoutes } from './workflows.ts'

export const routes: readonly Route[] = [
  ...storeRoutes,
  ...liveRoutes,
  ...searchRoutes,
  ...stateRoutes,
  ...eventRoutes,
  ...streamRoutes,
  ...collectionRoutes,
  ...consumerRoutes,
  ...workflowRoutes,
  ...handlerRoutes,
  ...deadLetterRoutes,
  ...runnerRoutes,
  ...tenantRoutes,
]
