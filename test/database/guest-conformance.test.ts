/** The same requirements through the process that has the folder open: a guest is a database like any other. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import { sql } from '../../src/database/sql.ts'
import { exerciseDatabase } from './conformance.ts'

const limits = { transactionTimeoutMs: 60_000 }
let folder: string
let holder: Database
let guest: Database | undefined

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'shop-'))
  holder = await openPglite({ folder }, limits)
})
afterAll(async () => {
  await guest?.close(1_000)
  await holder.close(1_000)
  await rm(folder, { recursive: true, force: true })
})

exerciseDatabase('guest', async () => {
  const isOpen = await guest?.run(sql`/* test.probe */ select 1`).then(
    () => true,
    () => false,
  )
  if (guest === undefined || isOpen === false) guest = await openPglite({ folder }, limits)
  return guest
})
