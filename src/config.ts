/**
 * The configuration of a program that is run by the command line: the store's options, and the code that belongs to it.
 *
 *     // rillflow.config.ts
 *     import { defineConfig } from 'rillflow'
 *
 *     export default defineConfig({
 *       events: shopEvents,
 *       projections: [sales],
 *       collections: [customers],
 *       subscriptions: [mailer],
 *       handlers: [charge, ship],
 *     })
 *
 * Everything is registered whenever a command opens the store, and run only by the commands that run things.
 */

import type { Awaitable } from './core/core.ts'
import { refuseUnknownOptions } from './core/options.ts'
import type { EventMap, UntypedEvents } from './events/definition.ts'
import { type Store, type StoreOptions, storeOptionNames } from './store.ts'

/**
 * The object of a `rillflow.config.ts`: the options of the store, and its definitions.
 *
 * @example
 * ```ts
 * const shop: Config = { aggregates: [Order], projections: [orders] }
 * ```
 */
export interface Config<M extends EventMap = UntypedEvents>
  extends Omit<StoreOptions<M>, 'database' | 'logger' | 'migrate' | 'register'> {
  /** Registers further definitions: those that are known only later, projections with another lifecycle. */
  readonly register?: ((store: Store<M>) => Awaitable<void>) | undefined
}

/**
 * Returns its argument, with its type, and refuses an option that does not exist.
 *
 * @example
 * ```ts
 * const config = defineConfig({ events, aggregates: [Order], projections: [orders] })
 * await using shop = await openStore({ ...config, memory: true })
 * ```
 */
export function defineConfig<M extends EventMap = UntypedEvents>(config: Config<M>): Config<M> {
  refuseUnknownOptions('defineConfig', config, storeOptionNames)
  return config
}
