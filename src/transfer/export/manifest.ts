/**
 * Archives: a whole store as a folder of text files, and back, on any engine.
 *
 *     export:  one snapshot ─► a cursor per table ─► <output>.unfinished-…/  ─► synced, renamed ─► <output>/
 *     import:  verify ─► one transaction: migrations up to the archive's ─► rows ─► indexes ─► sequences ─► the
 *              migrations since ─► processes end ─► commit
 *
 *     <output>/manifest.json          what it is, of which version, each file with its rows, bytes and SHA-256
 *     <output>/001-events.ndjson      a row a line, as PostgreSQL itself writes and reads it, in the order of the key
 *
 * What is in it: every table of the schema, found in the catalogue and not in a list, so that none is forgotten; their
 * shapes, so that tables which no program declares now come back as well; where the sequences stand. A row never becomes
 * a JavaScript value, so a number keeps all its digits and a time its microseconds.
 * What is not: the table of migrations (the manifest names them, and import runs them), columns that are generated, and
 * what others have put into the schema: views, functions, triggers, grants. A table that could not be brought back is
 * refused (`NotArchivable`), never left out in silence.
 *
 * Guarantees:
 * - An archive is one moment of the store: a transaction is in it as a whole or not at all. Under its name it is complete.
 * - An import has happened as a whole or not at all, into a schema that was absent or without rows. Positions, ids,
 *   versions and times are kept; the sequences stand at or above the source's and every checkpoint.
 * - Memory is that of two pages, whatever the size of the store.
 * - Processes do not move with the data. Daemons and workers that are in the archive are taken for stopped in good order:
 *   leases are free, and what a worker was running is ready again, at the attempt it was at.
 *
 * On a server others read and write while an export runs; it keeps vacuum from what is deleted meanwhile. Embedded there is
 * one connection: whoever else wants it waits for the end, and the event loop goes on turning. The same holds for an import.
 *
 * What can fail: an output that exists is refused (`ArchiveExists`); an export that fails or is aborted leaves nothing, one
 * whose process dies leaves a folder named `….unfinished-…`. A folder that is no archive (`ArchiveForeign`), one that is
 * not whole or was changed (`ArchiveDamaged`), one of a newer library (`ArchiveNewer`) and a schema with rows
 * (`SchemaNotEmpty`) write nothing. One of an older library is imported as what it was, then migrated.
 *
 * Checksums find accidents, not intent: the manifest holds SQL (defaults, indexes) that an import runs. Import only what you
 * would restore a dump of. `from-schema.ts` is the way that chooses: some streams and documents of one schema into another.
 */

import { createHash } from 'node:crypto'
import { canonicalJson } from '../../core/json.ts'
import type { TableShape } from '../table-shape.ts'

export const formatName = 'rillflow-archive'
export const formatVersion = 1

export const manifestFile = 'manifest.json'

/** Numbers that may pass 2^53 are text. */
export interface Manifest {
  readonly format: typeof formatName
  readonly version: number
  readonly createdAt: string
  readonly engine: 'postgres' | 'pglite'
  /** The name of the schema it was made from. */
  readonly schema: string
  /** Those the schema has had; the last one is its version. */
  readonly migrations: readonly { readonly id: number; readonly name: string; readonly checksum: string }[]
  readonly tables: readonly ArchivedTable[]
  /** The last value that was drawn of each, 0 for none. */
  readonly sequences: Readonly<Record<string, string>>
  /** Of the last event in it, 0 if there is none. */
  readonly position: string
}

export interface ArchivedTable extends TableShape {
  /** Where its rows are; null if they were left out. */
  readonly file: ArchivedFile | null
}

export interface ArchivedFile {
  readonly name: string
  readonly rows: number
  readonly bytes: number
  readonly sha256: string
}

export interface ArchiveProgress {
  readonly table: string
  /** Rows of all tables so far. */
  readonly rows: number
  readonly bytes: number
  /** All there are; undefined while that is not known. */
  readonly totalRows: number | undefined
}

/** What makes a change of the manifest seen. */
export function digestOf(manifest: Manifest): string {
  return createHash('sha256').update(canonicalJson(manifest)).digest('hex')
}

/** The time an export or an import may take. Both end with their signal, too. */
export const longestMs: number = 24 * 3_600_000
