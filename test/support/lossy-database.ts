/**
 * A database that loses answers or statements, like a connection that breaks: a statement is executed and its answer is
 * lost, or it is not executed at all.
 *
 *     const lossy = lossyDatabase(await openDatabase())
 *     const { store } = await openShop({ database: lossy.database })
 *     lossy.loseAnswerTo('workflows.claim')
 */

import type { Database } from '../../src/database/database.ts'
import { ConnectionLost, OutcomeUnknown } from '../../src/database/errors.ts'
import type { Statement } from '../../src/database/sql.ts'

export interface LossyDatabase {
  readonly database: Database
  /** The next statement with this label, or the transaction that contains it, is executed, and then the connection is lost. */
  loseAnswerTo(label: string): void
  /** The next statements with this label, `times` of them, never reach the database. */
  refuse(label: string, times: number): void
  /** Number of lost answers, and of lost statements. */
  counts(): { readonly lost: number; readonly refused: number }
}

export function lossyDatabase(database: Database): LossyDatabase {
  const unanswered = new Set<string>()
  const refusals = new Map<string, number>()
  let lost = 0
  let refused = 0

  const connectionLost = (): Error => new ConnectionLost({ reason: 'it was cut off' })
  const refuseIt = ({ label }: Statement): void => {
    const left = refusals.get(label) ?? 0
    if (left === 0) return
    refusals.set(label, left - 1)
    refused++
    throw connectionLost()
  }
  const isLost = (label: string): boolean => {
    if (!unanswered.delete(label)) return false
    lost++
    return true
  }
  const send = async <T>(statement: Statement, call: () => Promise<T>): Promise<T> => {
    refuseIt(statement)
    const answer = await call()
    if (isLost(statement.label)) throw connectionLost()
    return answer
  }

  return {
    database: {
      ...database,
      run: statement => send(statement, () => database.run<never>(statement)),
      runArrays: statement => send(statement, () => database.runArrays(statement)),
      async transaction(work, options) {
        const labels: string[] = []
        const see = <T>(statement: Statement, call: () => Promise<T>): Promise<T> => {
          refuseIt(statement)
          labels.push(statement.label)
          return call()
        }
        const result = await database.transaction(
          tx =>
            work({
              ...tx,
              run: async statement => see(statement, () => tx.run<never>(statement)),
              runArrays: async statement => see(statement, () => tx.runArrays(statement)),
            }),
          options,
        )
        if (labels.some(isLost)) throw new OutcomeUnknown({ eventIds: [], reason: 'it was cut off' })
        return result
      },
    },
    loseAnswerTo: label => void unanswered.add(label),
    refuse: (label, times) => void refusals.set(label, times),
    counts: () => ({ lost, refused }),
  }
}
