/**
 * Whose dead letters are meant: those of a consumer or of a handler. Users give a definition or a name:
 *
 *     store.deadLetters.list({ of: charge })                    the definition
 *     store.deadLetters.list({ of: 'charge' })                  its name, for operators
 *     store.deadLetters.list({ of: { handler: 'charge' } })     if a consumer has the same name
 *
 * The column `consumer` of the table has the name of a row of `consumers`, or `handler:` and the name of a handler. That
 * prefix is seen in SQL only. A subscription has several rows (`mailer/default`, `mailer/eu#0`), so one owner can stand
 * for several names.
 */

import type { Definition, DefinitionKind, Named } from '../../core/definition.ts'
import { InvalidOption } from '../../core/errors.ts'
import { canonicalUuid } from '../../core/id.ts'
import { describe } from '../../core/options.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { DeadLetterNotFound } from '../errors.ts'
import { consumerNames } from '../schema.ts'

/** One of the two: the name of a consumer, or that of a handler. */
export interface OwnerName {
  readonly consumer?: string | undefined
  readonly handler?: string | undefined
}

/** A definition, a name, or a dead letter, of whose owner the others are meant. */
export type DeadLetterOwner = Named | OwnerName

/** The prefix of the names of handlers in the column `consumer`. Consumers cannot have such a name. */
export const handlerPrefix = 'handler:'

/** The name of a handler as the column `consumer` has it. */
export function handlerRow(handler: string): string {
  return `${handlerPrefix}${handler}`
}

/** The name of the handler that has this in the column `consumer`. */
export function handlerOfRow(row: string): string {
  return row.slice(handlerPrefix.length)
}

export function isHandlerRow(row: string): boolean {
  return row.startsWith(handlerPrefix)
}

/** As users see it. */
export function ownerOfRow(row: string): OwnerName {
  return isHandlerRow(row) ? { handler: handlerOfRow(row) } : { consumer: row }
}

/** The name in a sentence. */
export function ownerName(of: DeadLetterOwner): string {
  return ownedBy(of).name
}

/** The names that an owner can have in the column `consumer`: one or more. */
export async function rowsOf(log: Log, of: DeadLetterOwner): Promise<string[]> {
  const { name, kind } = ownedBy(of)
  if (kind === 'handler') return [handlerRow(name)]
  const prefix = `${name.replaceAll(/[%/#]/g, encodeURIComponent)}/`
  const partitions = await log.database.run<{ name: string }>(sql`/* dead_letters.rows */
    select name
    from ${consumerNames(log).consumers}
    where kind = 'subscription'
      and starts_with(name, ${prefix}::text)
    order by name`)
  const consumers = [name, ...partitions.map(row => row.name)]
  return kind === 'consumer' ? consumers : [...consumers, handlerRow(name)]
}

/** The one of the owner's rows that has a dead letter of this event. */
export async function rowOf(log: Log, of: DeadLetterOwner, eventId: string): Promise<{ row: string; id: string }> {
  const name = ownerName(of)
  const id = canonicalUuid(eventId)
  if (id === undefined) throw new DeadLetterNotFound({ of: name, eventId })
  const found = await log.database.run<{ consumer: string }>(sql`/* dead_letters.row */
    select consumer
    from ${consumerNames(log).dead_letters}
    where consumer = any(${await rowsOf(log, of)}::text[])
      and event_id = ${id}::uuid
    order by consumer`)
  const [row] = found
  if (row === undefined) throw new DeadLetterNotFound({ of: name, eventId })
  if (found.length === 1) return { row: row.consumer, id }
  const owners = found.map(each => JSON.stringify(ownerOfRow(each.consumer))).join(' and ')
  throw new InvalidOption({
    option: 'of',
    reason: `Event ${eventId} has dead letters of ${owners}, and ${describe(name)} stands for both. Name one of them.`,
  })
}

const handlerKinds: readonly (DefinitionKind | undefined)[] = ['handler', 'join', 'undo']

function ownedBy(of: DeadLetterOwner): { readonly name: string; readonly kind: 'consumer' | 'handler' | undefined } {
  if (typeof of === 'string') return { name: of, kind: undefined }
  const { name, kind, consumer, handler } = (of ?? {}) as OwnerName & Partial<Definition>
  if (typeof handler === 'string') return { name: handler, kind: 'handler' }
  if (typeof consumer === 'string') return { name: consumer, kind: 'consumer' }
  if (typeof name !== 'string')
    throw new InvalidOption({
      option: 'of',
      reason: `The owner of a dead letter is given as ${describe(of)}. It must be a definition, a name, { consumer } or { handler }.`,
    })
  if (kind === undefined) return { name, kind: undefined }
  return { name, kind: handlerKinds.includes(kind) ? 'handler' : 'consumer' }
}
