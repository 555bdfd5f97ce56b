/**
 * Requirements on every engine: the guarantees of `src/database/database.ts`, one sentence each.
 *
 * Each part opens the database or uses the open one; the last part closes it.
 */
import { describe } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { exerciseClosing } from './conformance/closing.ts'
import { exerciseCopy } from './conformance/copy.ts'
import { exerciseListening } from './conformance/listening.ts'
import { exerciseRefusals } from './conformance/refusals.ts'
import { exerciseStatements } from './conformance/statements.ts'
import { exerciseTransactions } from './conformance/transactions.ts'

export function exerciseDatabase(name: string, open: () => Promise<Database>): void {
  describe(`${name}: statements`, () => exerciseStatements(open))
  describe(`${name}: transactions`, () => exerciseTransactions(open))
  describe(`${name}: inside a transaction`, () => exerciseRefusals(open))
  describe(`${name}: copy`, () => exerciseCopy(open))
  describe(`${name}: listening`, () => exerciseListening(open))
  describe(`${name}: closing`, () => exerciseClosing(open))
}
