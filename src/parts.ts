/** The objects of the library itself in the schema of a store, folder by folder. */
import { aggregatesPart } from './aggregates/schema.ts'
import { auditPart } from './audit/schema.ts'
import { consumersPart } from './consumers/schema.ts'
import { eventsPart } from './events/schema.ts'
import { type Library, libraryOf, type Part } from './schema/part.ts'
import { subscriptionsPart } from './subscriptions/schema.ts'
import { workflowsPart } from './workflows/schema.ts'

/** The folders that have tables or functions. */
export const parts: readonly Part[] = [
  eventsPart,
  consumersPart,
  aggregatesPart,
  subscriptionsPart,
  workflowsPart,
  auditPart,
]

/** The objects that this version of the library makes in a schema. */
export const library: Library = libraryOf(parts)
