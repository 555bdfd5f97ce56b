/**
 * Idempotency keys as rows: one per key, with a digest of the content it stands for. An append writes its key in its own
 * call; a save that is not an append (documents only, or step by step) claims it here, in its own transaction.
 */
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'

/** True if the key was free: it is ours with the commit. A transaction that has claimed it is waited for. */
export async function claimKey({ names }: Log, key: string, digest: string, tx: Executor): Promise<boolean> {
  const made = await tx.run(sql`/* events.claim_key */
    insert into ${names.idempotency_keys} (key, digest, event_ids)
    values (${key}::text, ${digest}::text, '{}')
    on conflict do nothing
    returning key`)
  return made.length > 0
}

/** The result of the save under a key, as JSON: a repeat answers with it. */
export async function storeDocuments({ names }: Log, key: string, documents: unknown, tx: Executor): Promise<void> {
  await tx.run(sql`/* events.store_documents */
    update ${names.idempotency_keys}
    set documents = ${JSON.stringify(documents)}::jsonb
    where key = ${key}::text`)
}
