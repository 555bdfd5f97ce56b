/** Number of statements that a server receives, counted in its own log, `begin` and `commit` included. */
import { open } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { BenchServer } from './server.ts'

/** Statements per second, measured from now on for `ms` milliseconds. */
export async function statementsPerSecond(server: BenchServer, ms: number): Promise<number> {
  await server.admin.query("alter system set log_statement = 'all'")
  await server.admin.query('select pg_reload_conf()')
  await sleep(500)
  const from = await endOfLog(server)
  await sleep(ms)
  const statements = await statementsAfter(server, from)
  await server.admin.query('alter system reset log_statement')
  await server.admin.query('select pg_reload_conf()')
  return statements / (ms / 1000)
}

const logOf = ({ postgres }: BenchServer): string => `${postgres.dataDir}/server.log`

async function endOfLog(server: BenchServer): Promise<number> {
  await using file = await open(logOf(server))
  return (await file.stat()).size
}

async function statementsAfter(server: BenchServer, from: number): Promise<number> {
  await using file = await open(logOf(server))
  const { size } = await file.stat()
  const { buffer } = await file.read(Buffer.alloc(size - from), 0, size - from, from)
  return buffer.toString().match(/LOG: {2}(?:execute|statement)\b/g)?.length ?? 0
}
