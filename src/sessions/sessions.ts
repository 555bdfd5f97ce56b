/**
 * Sessions: the unit of work. Each document is loaded once, changes are staged, and one save stores all of them.
 *
 *     load, fetchForWriting ──► identity map ──► put, decide, append ──► staged ──► save ──► (nothing staged)
 *                                                                         ▲           │ failed
 *                                                                         └───────────┘ all are still staged
 *
 * Guarantees:
 * - Documents, events, snapshots and the writes of inline projections are committed together or not at all. The order
 *   is that of an append: key, streams locked and checked, documents and snapshots, inline projections, positions,
 *   events.
 * - Nothing is overwritten unseen: a document that was loaded is replaced at that version only, one that was not is
 *   inserted, unless `upsert` is asked for. A stream that was fetched for writing is appended to at that version only.
 * - After a failed save the session is as before it. Its events keep their ids: if an earlier try was stored after all, the
 *   next one finds it, and stores nothing twice. (Documents alone have no such ids: give such a save an idempotency key.)
 * - Under an idempotency key a save is stored once, across sessions and processes; with other content it is refused.
 *
 * What can fail: appends and writes of documents, with their errors. `OutcomeUnknown` if no answer came: save again. A
 * session that ends with unsaved changes is reported on `channels.unsaved`.
 */
import type { AppendDefaults } from '../events/append/prepare.ts'
import { type DecideOn, type Handle, openDecide, openHandle } from './handle.ts'
import { openSession, type Session, type SessionOptions, type SessionParts } from './session.ts'

export interface Sessions {
  session(options?: SessionOptions): Session
  readonly handle: Handle
  readonly decide: DecideOn
}

export function openSessions(parts: Omit<SessionParts, 'defaults'>, defaults: AppendDefaults | undefined): Sessions {
  const all = { ...parts, defaults }
  return { session: options => openSession(all, options), handle: openHandle(all), decide: openDecide(all) }
}
