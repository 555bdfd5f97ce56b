/** Live passes, until the next one would not be much shorter: what is left then is for the fenced moment. */
import { throwIfAborted } from '../../core/lifecycle.ts'
import { identifier } from '../../database/sql.ts'
import { dayMs } from './claim.ts'
import type { Copied } from './move.ts'
import { livePass, type Mover } from './pass.ts'

/** Rows that the fenced moment copies without anybody noticing. */
const fewRows = 500
const mostPasses = 10

export async function catchUp(mover: Mover): Promise<Copied> {
  const total = { rows: 0, events: 0, bytes: 0, passes: 0 }
  for (let before = Infinity; total.passes < mostPasses; ) {
    const { rows, events, bytes, isWhole, changed } = await livePass(mover)
    total.rows += rows
    total.events += events
    total.bytes += bytes
    total.passes++
    const copied = rows + events
    if (isWhole && (copied <= fewRows || copied > before / 2)) break
    // Not after the last pass: whatever is written meanwhile is for the fenced moment.
    await tidy(mover, changed)
    before = copied
  }
  return total
}

/** A server that knows nothing of its tables plans badly, and cannot count events by their index alone. */
async function tidy({ move, claim }: Mover, tables: readonly string[]): Promise<void> {
  const { database } = move.target
  for (const table of tables) {
    throwIfAborted(claim.signal)
    const text = `vacuum (analyze) ${identifier(move.incoming, table)}`
    await database.run({ label: 'moving.tidy', text, values: [], unprepared: true, alone: { timeoutMs: dayMs } })
  }
}
