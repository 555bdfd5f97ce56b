/** Appends on their way to the database, and which of them must stay in their order. */
import type { Submitted } from './group-commit.ts'
import type { Append } from './send.ts'

export interface Pending {
  readonly append: Append
  /** What no other call may use meanwhile: its streams and its key, which a NUL tells from a stream's name. */
  readonly names: readonly string[]
  readonly resolve: (submitted: Submitted) => void
  readonly reject: (error: unknown) => void
  state: 'queued' | 'sent' | 'done'
  /** Whether the database may have seen it in a call whose answer never came. */
  unanswered: boolean
  /** Whether it is known to meet an inline projection, and so goes by itself. */
  isInline: boolean
}

/** Appends that share a stream stay together, in their order; those that share none go their own ways. */
export function chainsOf(appends: readonly Pending[]): Pending[][] {
  const chains = new Map<string, Pending[]>()
  for (const pending of appends) {
    const joined = [...new Set(pending.names.flatMap(name => chains.get(name) ?? []))]
    const chain = [...joined, pending]
    for (const { names } of chain) for (const name of names) chains.set(name, chain)
  }
  return [...new Set(chains.values())]
}

/** Those that come after one that waits, on one of its streams, and those that do not. */
export function apart(waiting: readonly Pending[], group: readonly Pending[]): [Pending[], Pending[]] {
  const waitedFor = new Set(waiting.flatMap(({ names }) => names))
  const behind: Pending[] = []
  const free: Pending[] = []
  for (const pending of group) {
    const isBehind = pending.names.some(name => waitedFor.has(name))
    if (isBehind) for (const name of pending.names) waitedFor.add(name)
    ;(isBehind ? behind : free).push(pending)
  }
  return [behind, free]
}

export function idsOf(append: Append): string[] {
  return append.parts.flatMap(part => part.events.map(event => event.id))
}
