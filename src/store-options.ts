/**
 * Finds the options of a store that could only fail later, or never be noticed: a poll that never rests, a channel by
 * which no process is woken, a definition in the wrong list. Each message says what is expected.
 */

import type { DefinitionKind } from './core/definition.ts'
import { InvalidOption } from './core/errors.ts'
import { describe, optionNames, refuseUnknownInside } from './core/options.ts'
import type { AppendDefaults } from './events/append/prepare.ts'
import type { DirectoryTenancy } from './tenants/tenancy.ts'
import type { RetentionOptions } from './upkeep/retention.ts'
import type { WorkflowOptions } from './workflows/workflows.ts'

/** Options as they may be given by a program that no compiler has checked. */
type Given = Readonly<Record<string, unknown>>

export function checkStoreOptions(call: string, options: unknown): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    refuse('options', `${call} takes an object, not ${describe(options)}. Write ${call}({ url: 'postgres://…' }).`)
  const given = options as Given
  for (const [option, min] of Object.entries(least)) checkNumber(option, given[option], min)
  for (const [option, names] of Object.entries(nested)) refuseUnknownInside(call, option, given[option], names)
  for (const [option, kinds] of Object.entries(lists)) checkList(option, given[option], kinds)
  checkChannel(given.channel)
  checkLogger(given.logger)
  for (const option of ['applicationName', 'folder', 'schema'])
    if (given[option] !== undefined && typeof given[option] !== 'string')
      refuse(option, `The option "${option}" is ${describe(given[option])}. It must be text.`)
  checkMethods('clock', given.clock, ['now', 'setTimeout'], 'a Clock, such as fakeClock() of rillflow/testing')
  checkMethods('ids', given.ids, ['next'], 'Ids, such as countingIds() of rillflow/testing')
  checkMethods('events', given.events, ['create'], 'a definition of events: defineEvents(…)')
  const { migrate, register } = given
  if (migrate !== undefined && typeof migrate !== 'boolean' && migrate !== 'manual')
    refuse('migrate', `The option "migrate" is ${describe(migrate)}. It must be true, false or 'manual'.`)
  if (register !== undefined && register !== false && typeof register !== 'function')
    refuse('register', `The option "register" is ${describe(register)}. It must be a function of the store, or false.`)
}

/** The names inside the options that are objects themselves. */
const nested: Readonly<Record<string, readonly string[]>> = {
  retention: optionNames<RetentionOptions>({
    ...{ attemptsMs: true, idempotencyKeysMs: true, deadLettersMs: true, auditMs: true, historyMs: true },
    archivedStreamsMs: true,
  }),
  workflows: optionNames<WorkflowOptions>({ maxHops: true, maxEmitted: true }),
  sessionDefaults: optionNames<AppendDefaults>({
    headers: true,
    correlationId: true,
    causationId: true,
    userId: true,
  }),
  tenancy: optionNames<DirectoryTenancy>({ directory: true, schema: true, servers: true }),
  password: ['env', 'file'],
}

/** The least value of each number. */
const least: Readonly<Record<string, number>> = {
  ...{ pollMs: 1, maxConnections: 1, maxUses: 1, connectTimeoutMs: 1, answerTimeoutMs: 1, transactionTimeoutMs: 1 },
  ...{ maxEventBytes: 1, maxDocumentBytes: 1, maxQueuedAppends: 1, resendMs: 0, closeMs: 0 },
}

function checkNumber(option: string, value: unknown, min: number): void {
  if (value === undefined || (typeof value === 'number' && value >= min)) return
  refuse(option, `The option "${option}" is ${describe(value)}. It must be a number from ${min} on.`)
}

const lists: Readonly<Record<string, readonly DefinitionKind[]>> = {
  aggregates: ['aggregate'],
  collections: ['collection'],
  projections: ['projection'],
  processors: ['processor'],
  subscriptions: ['subscription'],
  handlers: ['handler', 'join', 'undo'],
  joins: ['join', 'handler', 'undo'],
  undos: ['undo', 'handler', 'join'],
  schedules: ['schedule'],
  upcasters: ['upcaster'],
}

function checkList(option: string, list: unknown, kinds: readonly DefinitionKind[]): void {
  if (list === undefined) return
  if (!Array.isArray(list))
    refuse(option, `The option "${option}" is ${describe(list)}. It must be a list: ${option}: [ … ].`)
  for (const [at, each] of (list as unknown[]).entries()) {
    const { kind, name } = (each ?? {}) as { kind?: DefinitionKind; name?: unknown }
    if (kind !== undefined && kinds.includes(kind)) continue
    const found = kind === undefined ? describe(each) : `the ${kind} ${JSON.stringify(name)}`
    const place = Object.entries(lists).find(([, others]) => kind !== undefined && others[0] === kind)?.[0]
    const fix = place === undefined ? `Make it with define${capital(kinds[0]!)}(…).` : `Give it as "${place}".`
    refuse(option, `The option "${option}" has ${found} at index ${at}. ${fix}`)
  }
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1)
}

function checkChannel(channel: unknown): void {
  if (channel === undefined) return
  const isName = typeof channel === 'string' && Buffer.byteLength(channel) > 0 && Buffer.byteLength(channel) <= 63
  if (!isName || (channel as string).includes('\0'))
    refuse(
      'channel',
      `The option "channel" is ${describe(channel)}. It must be a name of 1 to 63 bytes: by another one no process is woken.`,
    )
}

function checkLogger(logger: unknown): void {
  if (logger === undefined || logger === false) return
  checkMethods(
    'logger',
    logger,
    ['debug', 'info', 'warn', 'error'],
    'a logger such as pino or console, or false for none',
  )
}

function checkMethods(option: string, value: unknown, methods: readonly string[], expected: string): void {
  if (value === undefined) return
  const missing = methods.filter(method => typeof (value as Record<string, unknown> | null)?.[method] !== 'function')
  if (missing.length > 0)
    refuse(
      option,
      `The option "${option}" is ${describe(value)} without ${missing.map(name => `${name}()`).join(', ')}. It must be ${expected}.`,
    )
}

function refuse(option: string, reason: string): never {
  throw new InvalidOption({ option, reason })
}
