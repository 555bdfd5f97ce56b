/** One consumer in full: its status, and what its definition says, as far as this process knows it. */
import { type Named, nameOf } from '../core/definition.ts'
import type { Backoff } from '../core/retry.ts'
import { sql } from '../database/sql.ts'
import type { Consumer } from './consumer.ts'
import type { Consumers } from './consumers.ts'
import type { FailureEnd } from './run/policy.ts'
import { consumerNames } from './schema.ts'
import { type ConsumerStatus, readGroupStatus } from './status.ts'

export interface ConsumerDescription extends ConsumerStatus {
  /** The tables that it writes, in the database. */
  readonly tables: readonly string[]
  /** Undefined if this process does not have its code. */
  readonly definition: ConsumerDefinition | undefined
}

export interface ConsumerDefinition {
  /** Undefined: all types. */
  readonly types: readonly string[] | undefined
  readonly categories: readonly string[] | undefined
  readonly streams: readonly string[] | undefined
  /** Whether a function of its own leaves out further events. */
  readonly hasCondition: boolean
  readonly batchSize: number
  readonly leaseMs: number
  readonly timeoutMs: number | undefined
  readonly retries: number
  readonly backoff: Backoff
  /** 'function' if its code decides. */
  readonly onFailure: FailureEnd | 'function'
  readonly hasBreaker: boolean
}

export async function describeConsumer(consumers: Consumers, of: Named, group: string): Promise<ConsumerDescription> {
  const name = nameOf(of)
  const status = await readGroupStatus(consumers, name, group)
  const registered = consumers.get(name)
  const [row] = await consumers.log.database.run<{ tables: string[] | null }>(sql`/* consumers.tables */
    select c.definition -> 'tables' as tables
    from ${consumerNames(consumers.log).consumers} as c
    where c.name = ${name}::text`)
  return {
    ...status,
    tables: registered?.tables ?? row?.tables ?? [],
    definition: registered === undefined ? undefined : definitionOf(registered),
  }
}

function definitionOf({ filter, batchSize, leaseMs, timeoutMs, policy, breaker }: Consumer): ConsumerDefinition {
  const { retries, backoff, onFailure } = policy
  return {
    ...{ types: filter.types, categories: filter.categories, streams: filter.streams },
    hasCondition: filter.where !== undefined,
    ...{ batchSize, leaseMs, timeoutMs, retries, backoff },
    onFailure: typeof onFailure === 'function' ? 'function' : onFailure,
    hasBreaker: breaker !== undefined,
  }
}
