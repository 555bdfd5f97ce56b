/** The error for a name that nobody has, with the one that was probably meant. */
import { nearestName } from '../core/nearest.ts'
import type { Executor } from '../database/database.ts'
import type { Log } from '../events/log.ts'
import { SubscriptionNotFound } from './errors.ts'
import { storedPlans } from './register.ts'

export async function notFound(
  log: Log,
  executor: Executor,
  subscription: string,
  group: string | undefined,
): Promise<InstanceType<typeof SubscriptionNotFound>> {
  const plans = await storedPlans(log, executor)
  const ofName = plans.filter(plan => plan.subscription === subscription)
  if (group !== undefined && ofName.length > 0) {
    const nearest = nearestName(
      group,
      ofName.map(plan => plan.group),
    )
    return new SubscriptionNotFound({ subscription, group, nearest })
  }
  return new SubscriptionNotFound({
    subscription,
    nearest: nearestName(
      subscription,
      plans.map(plan => plan.subscription),
    ),
  })
}
