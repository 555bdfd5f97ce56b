/**
 * A process that crashes at a chosen step: from then on nothing reaches its databases. An open transaction is rolled back,
 * as by the server when a connection breaks; the answer to a commit may be lost.
 */

import type { Database, Transaction } from '../../../src/database/database.ts'
import { ConnectionLost } from '../../../src/database/errors.ts'
import type { Statement } from '../../../src/database/sql.ts'
import type { Move } from '../../../src/transfer/move/move.ts'

/**
 * The move in such a process. `crashesAt` is called before each statement and each commit, and after each commit:
 * `live target copy`, `fenced source commit`, `switched target alter schema`.
 */
export function crashingMove(
  move: Move,
  crashesAt: (step: string) => boolean,
  begunAs: 'live' | 'switched' = 'live',
): Move {
  let phase: 'live' | 'fenced' | 'switched' = begunAs
  let isDead = false
  const live = (name: string): void => {
    if (name === 'source move.lock_tables') phase = 'fenced'
    if (name === 'source committed' && phase === 'fenced') phase = 'switched'
    const step = `${phase} ${name}`
    isDead ||= crashesAt(step)
    if (isDead) throw new ConnectionLost({ reason: `died at ${step}` })
  }
  const watched = (name: string, database: Database): Database => ({
    ...database,
    run: async <R extends object>(statement: Statement) => {
      live(`${name} ${statement.label}`)
      return database.run<R>(statement)
    },
    runArrays: async statement => {
      live(`${name} ${statement.label}`)
      return database.runArrays(statement)
    },
    transaction: async (work, options) => {
      const result = await database.transaction(async tx => {
        const done = await work(watchedTransaction(name, tx, live))
        live(`${name} commit`)
        return done
      }, options)
      live(`${name} committed`)
      return result
    },
  })
  const source = { ...move.source, database: watched('source', move.source.database) }
  const target = { ...move.target, database: watched('target', move.target.database) }
  return { ...move, source, target }
}

function watchedTransaction(name: string, tx: Transaction, live: (step: string) => void): Transaction {
  return {
    ...tx,
    run: async <R extends object>(statement: Statement) => {
      live(`${name} ${statement.label}`)
      return tx.run<R>(statement)
    },
    runArrays: async statement => {
      live(`${name} ${statement.label}`)
      return tx.runArrays(statement)
    },
    query: async <R extends object>(text: string, values?: readonly unknown[]) => {
      live(`${name} ${text.split(' ', 2).join(' ')}`)
      return tx.query<R>(text, values)
    },
    copyIn: async (table, columns, rows) => {
      live(`${name} copy`)
      return tx.copyIn(table, columns, rows)
    },
  }
}
