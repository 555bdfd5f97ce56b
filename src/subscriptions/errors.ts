/** The errors of subscriptions. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const SubscriptionMismatch: ErrorKind<
  'subscription_mismatch',
  { subscription: string; what: 'filter' | 'partitions' | 'partitionBy'; stored: unknown; given: unknown }
> = defineError('subscription_mismatch', d => {
  const said = `Subscription "${d.subscription}" is stored with ${d.what} ${text(d.stored)}, but was given ${text(d.given)}.`
  if (d.what === 'filter') return `${said} Give the stored one, pass replace: true, or use another name.`
  return `${said} Give the stored one, or change it with store.subscriptions.repartition().`
})
export const AlreadySettled: ErrorKind<
  'already_settled',
  { consumer: string; position: number; as: 'acknowledged' | 'given back' }
> = defineError(
  'already_settled',
  d =>
    `The delivery of the event at ${d.position} to "${d.consumer}" was ${d.as} before. Call ack or nack once per delivery.`,
)

function text(value: unknown): string {
  return JSON.stringify(value) ?? 'none'
}
