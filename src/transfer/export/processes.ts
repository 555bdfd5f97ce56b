/**
 * The end of processes that a copied store knows of, and that did not come with it: as if each had stopped in good order.
 * What a worker was running is given back without being counted against it, since nobody has seen it fail.
 */

import { consumerNames } from '../../consumers/schema.ts'
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { releaseWorkers } from '../../workflows/work/rescue.ts'

export async function endProcesses(tx: Transaction, schema: string): Promise<void> {
  const names = consumerNames({ schema })
  await tx.run(sql`/* archive.daemons */
    delete from ${names.daemons}`)
  await tx.run(sql`/* archive.leases */
    update ${names.consumers}
    set owner = null,
      lease_until = null
    where owner is not null`)
  await releaseWorkers({ schema }, tx)
}
