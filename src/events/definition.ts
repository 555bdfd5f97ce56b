/**
 * The definition of a store's events, and the types that follow from it.
 *
 * A definition is a map from type name to data, written either as a TypeScript type alone (nothing is checked at run
 * time) or as a Standard Schema per type (checked when appended). It is given to the store and types append, read and
 * everything that consumes the log; without one, names are strings and data is unknown.
 *
 * A schema only checks an event, it never changes the stored data. So the type of the data is the schema's *input*, the
 * same for append and read. A Date is stored, and so read back, as ISO text: in a definition by types alone it is text, for
 * append, too; a schema must describe it as text.
 */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { AsJson, ObjectAsJson } from '../core/as-json.ts'

/**
 * Defines events by type: a union of `{ type: 'OrderPlaced'; data: … }`, a map `{ OrderPlaced: … }`, or schemas.
 *
 *     const events = defineEvents<ShopEvents>()
 *     const events = defineEvents({ OrderPlaced: z.object({ total: z.number() }) })
 *
 * A larger program gives the map a name, which hovers and messages then show, and which keeps declarations small:
 *
 *     interface ShopEvents extends EventsIn<typeof schemas> {}
 *     const events = defineEvents<ShopEvents>(schemas)
 *
 * Definitions combine by spreading: `defineEvents({ ...orders.schemas, ...billing.schemas })`.
 *
 * @example
 * ```ts
 * const cartEvents = defineEvents<{ type: 'CartOpened'; data: { customer: string } }>()
 * ```
 */
export function defineEvents<Events extends object>(): EventDefinitions<MapOf<Events>>
export function defineEvents<Schemas extends EventSchemas>(schemas: Schemas): EventDefinitions<EventsIn<Schemas>>
export function defineEvents<M extends object>(schemas: SchemasOf<M>): EventDefinitions<M>
export function defineEvents(schemas: object = {}): EventDefinitions<UntypedEvents> {
  return { schemas: schemas as SchemasOf<UntypedEvents>, create: (type, data) => ({ type, data }) }
}

/** The events of a store: their types, and their schemas where there are any. */
export interface EventDefinitions<M extends EventMap = UntypedEvents> {
  /**
   * The schemas by type name. A type that is given as `undefined` is not checked; one that is not given is refused, if
   * there are others.
   */
  readonly schemas: SchemasOf<M>
  /** An event to be appended, typed by its name. */
  create<T extends keyof M & string>(type: T, data: M[T]): NewEventOf<T, M[T]>
  /** Absent at run time: it carries the map to where types are inferred. */
  readonly '~events'?: M | undefined
}

/** The map inside a definition: `EventsOf<typeof shopEvents>`. */
export type EventsOf<D extends { readonly '~events'?: EventMap | undefined }> = NonNullable<D['~events']>

/** Type name to data: any object type, so that an interface fits, too. */
export type EventMap = object

/** The map when nothing was defined: any name, any data. */
export interface UntypedEvents {
  readonly [type: string]: unknown
}

export interface EventSchemas {
  readonly [type: string]: StandardSchemaV1
}

/**
 * An event to be appended: one kind per type of the map, distinguished by `type`.
 *
 * @example
 * ```ts
 * const shipped: NewEvent<EventsOf<typeof events>> = { type: 'OrderShipped', data: { carrier: 'Swift' } }
 * ```
 */
export type NewEvent<M extends EventMap = UntypedEvents> = {
  [T in keyof M & string]: NewEventOf<T, M[T]>
}[keyof M & string]

export interface NewEventOf<Type extends string, Data> {
  readonly type: Type
  readonly data: Data
  /** A UUID; default: a new UUIDv7. */
  readonly id?: string | undefined
  /** The version of the data's shape; default: the newest that the upcasters of the type lead to, else 1. */
  readonly schemaVersion?: number | undefined
  readonly headers?: Readonly<Record<string, unknown>> | undefined
  /** The id that all events of one workflow share; default: the event's own id. */
  readonly correlationId?: string | undefined
  /** The id of the event or command that caused this event. */
  readonly causationId?: string | undefined
  readonly userId?: string | undefined
}

/**
 * An event of the log: one kind per type of the map, distinguished by `type`.
 *
 * @example
 * ```ts
 * const place = ({ stream, version }: RecordedEvent) => `${stream}@${version}`
 * for await (const event of store.events.readAll({ limit: 1 })) place(event)
 * ```
 */
export type RecordedEvent<M extends EventMap = UntypedEvents> = {
  [T in keyof M & string]: RecordedEventOf<T, M[T]>
}[keyof M & string]

export interface RecordedEventOf<Type extends string, Data> {
  readonly id: string
  readonly type: Type
  readonly data: Data
  readonly stream: string
  /** Its number in its stream, from 1. */
  readonly version: number
  /** Its place in the log. */
  readonly position: number
  readonly schemaVersion: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly correlationId: string
  readonly causationId?: string | undefined
  readonly userId?: string | undefined
  readonly createdAt: Date
  /** Set on an event that is too large to be read: its `data` throws `EventTooLarge`, and it has no headers. */
  readonly isTooLarge?: true | undefined
}

/** The types that code may be given for: those of the map, and `'*'` for all types without code of their own. */
export type EventKey<M extends EventMap> = (keyof M & string) | '*'

/** An event of one type that is yet to be stored; `'*'` stands for any type. */
export type NewEventAt<M extends EventMap, T extends string> = T extends keyof M & string
  ? NewEventOf<T, M[T]>
  : NewEvent<M>

/** A stored event of one type; `'*'` stands for any type. */
export type RecordedEventAt<M extends EventMap, T extends string> = T extends keyof M & string
  ? RecordedEventOf<T, M[T]>
  : RecordedEvent<M>

/**
 * The map that a definition carries. One without events carries `object`: it fits every store, and its events are of any
 * type. (`infer`, so that the map is inferred from the events that are given, never from where the definition is used.)
 */
export type EventsCarried<M extends EventMap> = [M] extends [infer E extends EventMap]
  ? string extends keyof E
    ? object
    : E
  : never

/** An event of a map that a definition carries. */
export type NewEventIn<M extends EventMap> = [keyof M] extends [never] ? NewEvent : NewEvent<M>

/** The maps of the definitions that fit a store of `M`: any where the store does not say which events it has. */
export type EventsAccepted<M extends EventMap> = string extends keyof M ? never : M

// In brackets, so that a union is looked at as a whole and not member by member.
type MapOf<Events extends object> = [Events] extends [infer E extends { type: string; data: unknown }]
  ? { readonly [Event in E as Event['type']]: AsJson<Event['data']> }
  : ObjectAsJson<Events>

/** The map of events that schemas describe. */
export type EventsIn<Schemas> = {
  readonly [T in keyof Schemas & string]: Schemas[T] extends StandardSchemaV1<infer Input, unknown> ? Input : never
}

/** Schemas by type name. */
export type SchemasOf<M extends EventMap> = { readonly [T in keyof M & string]?: StandardSchemaV1<M[T]> | undefined }
