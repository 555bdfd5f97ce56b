/**
 * The live feed: server-sent events, one connection a tab.
 *
 *     events.tail ──┐
 *     workflows.watch ─┼─► feed: batches of at most 100 ms ─► event: events   id: e1200.a5531   data: [ … ]
 *     figures (2 s) ──┘                                       a comment line every 15 s
 *
 *     live.ts   the connections of a server, and their limits        feed.ts   one connection
 *     ring.ts   the figures of the last 24 hours             pace.ts   how many messages a feed gets
 *     sent-events.ts   the protocol, which `rillflow/http` uses, too
 *
 * Guarantees:
 * - Sources are pulled: while a client does not read, nothing is read for it. None is passed over and none comes twice.
 * - `id` has the position of the log and that of the activity; a client that comes back with it (`Last-Event-ID`, or the
 *   parameter `after`) continues there. One that is more than 5000 behind gets `gap` with both ends, and continues now.
 *   So does one that gets more than 100 messages a second for a while (`pace.ts`): a flood costs the application little.
 * - 32 connections of a server, 4 of a sender. They do not count as requests, so they cannot keep out the probes.
 */
import { RequestRefused } from '../api/answer.ts'

export interface LiveConnections {
  /** Counts a connection; call the function returned when it ends. */
  begin(sender: string): () => void
  /** Aborts when the server closes. */
  readonly signal: AbortSignal
  close(): void
}

const maxConnections = 32
const maxOfSender = 4

export function openLiveConnections(): LiveConnections {
  const closing = new AbortController()
  const senders: string[] = []
  return {
    signal: closing.signal,
    begin(sender) {
      const own = senders.filter(each => each === sender).length
      if (senders.length >= maxConnections || own >= maxOfSender)
        throw new RequestRefused(
          429,
          'overloaded',
          own >= maxOfSender
            ? `You have ${maxOfSender} live feeds already. Close a tab of the console.`
            : `This server has ${maxConnections} live feeds already.`,
          { 'retry-after': '10' },
        )
      senders.push(sender)
      let isOver = false
      return () => {
        if (isOver) return
        isOver = true
        senders.splice(senders.indexOf(sender), 1)
      }
    },
    close: () => closing.abort(),
  }
}
