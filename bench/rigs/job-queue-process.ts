/** Job queues in processes of their own, all on the same Node. */
import { newerNode } from '../harness/newer-node.ts'
import { runProgram } from '../harness/program.ts'
import type { WorkingAnswer, WorkingInput } from '../programs/job-queue-load.ts'
import { jobQueues } from './job-queues.ts'

export function work(input: WorkingInput): Promise<WorkingAnswer> {
  return runProgram<WorkingAnswer>('job-queue-load', input, { node: newerNode() })
}

/** Each makes its tables when it is first opened. */
export async function makeJobTables(url: string): Promise<void> {
  for (const who of jobQueues) await work({ who, place: { url }, setup: {}, what: { jobs: 1 } })
}
