/**
 * Transfer: a store, or a part of it, as files, in another schema, or on another server.
 *
 *     export/   a store ──export──► a folder of text files ──import──► a store on any engine
 *               streams and documents of one schema ──importSelection──► a store in another schema
 *     move/     a store on one server ──copy, switch──► the same store on another server, while it is written to
 *     backup/   an embedded store ──backup──► a copy of its folder ──restore──► the folder, cut at a position if asked
 *
 * An export can be read by people and by any version of any engine, and takes as long as its rows. A backup is quicker,
 * and only an embedded store of the same major version of PostgreSQL can read it. A move is the only one that lets
 * writers continue.
 *
 * Guarantees:
 * - A copy is complete or it is absent. It is made under another name and renamed when all of it was written.
 * - Positions, ids, versions and times are those of the source. Sequences stand at or above every number that was ever
 *   drawn, so a position or a fence is never given out twice.
 * - The source is only read. A move renames it at its end, after both sides were found equal.
 * - Processes do not travel with the data: leases are free in the copy, and handlers that were running are ready again.
 *
 * What can fail: each step, and the process with it. An interrupted export or backup leaves a folder whose name says
 * that it is unfinished; an interrupted import leaves nothing, and one of a selection continues when it is called
 * again; an interrupted move continues when it is called again, or is discarded.
 *
 * Deliberately not here: tenants. Which server has which tenant is decided in `tenants/`, which calls this folder.
 */
import type { Database } from '../database/database.ts'

/** Where the tables of one store are: a database, and a schema in it. */
export interface StoreLocation {
  readonly database: Database
  readonly schema: string
}

/** How long an export, an import or one transaction of a move may take. Each of them also ends with its signal. */
export const maxTransferMs: number = 24 * 3_600_000
