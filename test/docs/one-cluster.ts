/**
 * Loaded before a program that starts many engines: the first one in memory makes its cluster as ever, which takes seconds, and
 * those after it begin with a copy of that, in memory and in new folders.
 */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { PGlite, type PGliteOptions } from '@electric-sql/pglite'

const create = PGlite.create.bind(PGlite)
let cluster: Promise<Blob> | undefined

PGlite.create = (async (options: PGliteOptions) => {
  const { dataDir, noInitDb } = options
  // One without is what the engine makes a cluster with.
  if (noInitDb || (dataDir !== undefined && existsSync(`${fileURLToPath(dataDir)}/PG_VERSION`))) return create(options)
  if (cluster !== undefined) return create({ ...options, loadDataDir: await cluster })
  if (dataDir !== undefined) return create(options)
  const first = create(options)
  cluster = first.then(engine => engine.dumpDataDir('none'))
  await cluster
  return first
}) as typeof create
