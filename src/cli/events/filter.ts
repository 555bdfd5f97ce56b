/** The options that say which events are wanted. */

export const filterOptions = {
  type: { kind: 'text', many: true, value: 'TYPE', summary: 'Only events of this type', aliases: ['event-type'] },
  stream: { kind: 'text', many: true, value: 'STREAM', summary: 'Only events of this stream', aliases: ['stream-id'] },
  category: {
    kind: 'text',
    many: true,
    value: 'CATEGORY',
    summary: 'Only streams whose name begins with it and a "-"',
  },
} as const

export interface GivenFilter {
  readonly type: readonly string[]
  readonly stream: readonly string[]
  readonly category: readonly string[]
}

/** As the store takes it: what was not given is left out. */
export function filterOf({ type, stream, category }: GivenFilter): {
  types?: readonly string[]
  streams?: readonly string[]
  categories?: readonly string[]
} {
  return {
    ...(type.length === 0 ? {} : { types: type }),
    ...(stream.length === 0 ? {} : { streams: stream }),
    ...(category.length === 0 ? {} : { categories: category }),
  }
}
