/**
 * Deciders: what a stream means, in three pure functions.
 *
 *     const order = decider({
 *       events: shopEvents,                                            types the events; or annotate them
 *       initial: (): Order => ({ status: 'new', total: 0 }),
 *       evolve: (order, event): Order => (event.type === 'OrderPaid' ? { ...order, status: 'paid' } : order),
 *       decide(command: OrderCommand, order): ShopEvent {
 *         if (order.status !== 'paid') throw new Error('pay first')
 *         return { type: 'OrderShipped', data: { parcel: command.parcel } }
 *       },
 *     })
 *
 * What `evolve` and `decide` return is best said: TypeScript takes 'paid' for any text while it still infers the state.
 */
import type { EventDefinitions, EventMap, NewEvent, NewEventOf, UntypedEvents } from '../events/definition.ts'

/** An event as a decision says it and a fold sees it: what is only known once it is stored is not there to rely on. */
export type AnyEvent = NewEventOf<string, unknown>

export interface Decider<State, Command, Event extends AnyEvent = AnyEvent> {
  /** The state of a stream without events. */
  initial(): State
  /** The state after an event. It gets every event of the stream; one it has no use for leaves the state as it is. */
  evolve(state: State, event: Event): State
  /** What happens when this is asked for: events, none of them if nothing does, or an error thrown to refuse it. */
  decide(command: Command, state: State): Event | readonly Event[]
}

export function decider<State, Command, M extends EventMap = UntypedEvents, Event extends AnyEvent = NewEvent<M>>(given: {
  /** Types the events; without it they are what `evolve` takes. */
  readonly events?: EventDefinitions<M>
  readonly initial: () => State
  readonly evolve: (state: NoInfer<State>, event: Event) => NoInfer<State>
  readonly decide: (command: Command, state: NoInfer<State>) => NoInfer<Event> | readonly NoInfer<Event>[]
}): Decider<State, Command, Event> {
  const { initial, evolve, decide } = given
  return { initial, evolve, decide }
}
