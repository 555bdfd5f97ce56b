/** Connections of a peer. Alone in a file, so that programs can open them without the code that starts servers. */
import pg from 'pg'

/** A pool that keeps its connections open between calls. The server may stop before the last idle connection does. */
export function openPool(url: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max, idleTimeoutMillis: 0 })
  pool.on('error', () => {})
  return pool
}
