/**
 * Loaded before a program that starts many engines: the first one in memory makes its cluster as usual, which takes seconds, and
 * later ones start from a copy of it, in memory and in new folders.
 */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { PGlite, type PGliteOptions } from '@electric-sql/pglite'

const create = PGlite.create.bind(PGlite)
let cluster: Promise<Blob> | undefined

PGlite.create = (async (options: PGliteOptions) => {
  const { dataDir, noInitDb } = options
  // The engine uses one without initdb to make a cluster.
  if (noInitDb || (dataDir !== undefined && existsSync(`${fileURLToPath(dataDir)}/PG_VERSION`))) return create(options)
  if (cluster !== undefined) return create({ ...options, loadDataDir: await cluster })
  if (dataDir !== undefined) return create(options)
  const first = create(options)
  cluster = first.then(engine => engine.dumpDataDir('none'))
  await cluster
  return first
}) as typeof create
