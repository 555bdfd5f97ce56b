/**
 * The end of processes that a copied store knows of, and that did not come with it: as if each had stopped in good order.
 * What a worker was running is given back without being counted against it, since nobody has seen it fail.
 */

import { freeAll } from '../../consumers/operator.ts'
import { removeAllRunners } from '../../consumers/runners/members.ts'
import type { Transaction } from '../../database/database.ts'
import { releaseWorkers } from '../../workflows/work/rescue.ts'

export async function endProcesses(tx: Transaction, schema: string): Promise<void> {
  await removeAllRunners({ schema }, tx)
  await freeAll({ schema }, tx)
  await releaseWorkers({ schema }, tx)
}
