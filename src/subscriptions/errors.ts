/** The errors of subscriptions. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const SubscriptionMismatch: ErrorKind<
  'subscription_mismatch',
  { subscription: string; what: 'filter' | 'partitions' | 'partitionBy'; stored: unknown; given: unknown }
> = defineError('subscription_mismatch', d => {
  const said = `Subscription "${d.subscription}" is stored with ${d.what} ${text(d.stored)}, but was given ${text(d.given)}.`
  if (d.what === 'filter') return `${said} Give the stored one, pass replace: true, or take another name.`
  return `${said} Give the stored one, or change it with store.subscriptions.repartition().`
})
export const SubscriptionNotFound: ErrorKind<
  'subscription_not_found',
  { subscription: string; group?: string | undefined; nearest?: string | undefined }
> = defineError('subscription_not_found', d => {
  const what = d.group === undefined ? 'subscription' : `group "${d.group}" of subscription`
  const hint = d.nearest === undefined ? 'See store.subscriptions.list().' : `Did you mean "${d.nearest}"?`
  return `There is no ${what} "${d.subscription}" here. ${hint}`
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
