/**
 * The hosts of a log, as rows: each writes its own with every look, and all see who is alive by the database's clock.
 *
 * A host is `hot` (it takes consumers) or `standby` (it waits until no hot one with a node's name is alive). One that
 * comes back after its heartbeat has expired, and finds another hot node, is a standby from then on.
 */

import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import { free } from '../operator.ts'
import { type Lease, renewedLeases } from '../row.ts'
import { consumerNames } from '../schema.ts'
import type { Member } from './balance.ts'

export type Role = 'hot' | 'standby'

export interface Join {
  readonly owner: string
  readonly node: string | undefined
  readonly standby: boolean
  readonly leaseMs: number
}

/** Enters a host. Another one under its node's name is replaced, its leases are free, its role is kept. */
export async function join(log: Log, { owner, node = undefined, standby, leaseMs }: Join): Promise<void> {
  await log.database.transaction(async tx => {
    // Two starts under one name take turns.
    await tx.run(sql`/* daemons.queue */
      select pg_advisory_xact_lock(${consumerNames(log).daemons.quoted}::regclass::oid::bigint)`)
    await tx.run(sql`/* daemons.forget */
      delete from ${consumerNames(log).daemons}
      where heartbeat_at < ${log.names.clock}(heartbeat_at) - 10 * make_interval(secs => lease_ms / 1000.0)`)
    const replaced = await tx.run<{ owner: string; role: Role }>(sql`/* daemons.replace */
      delete from ${consumerNames(log).daemons}
      where node = ${node ?? null}::text
      returning owner, role`)
    if (replaced.length > 0)
      await free(
        log,
        replaced.map(row => row.owner),
        tx,
      )
    const role: Role = standby && !replaced.some(row => row.role === 'hot') ? 'standby' : 'hot'
    await tx.run(sql`/* daemons.join */
      insert into ${consumerNames(log).daemons} (owner, node, role, lease_ms, heartbeat_at, started_at, consumers)
      select ${owner}::text, ${node ?? null}::text, ${role}::text, ${leaseMs}::integer, moment.at, moment.at, '{}'
      from ${moment(log.names.clock)}
      -- Sent again, because the first one got no answer.
      on conflict (owner) do update
      set heartbeat_at = excluded.heartbeat_at`)
  })
}

export async function leave(log: Log, owner: string): Promise<void> {
  await log.database.run(sql`/* daemons.leave */
    delete from ${consumerNames(log).daemons}
    where owner = ${owner}::text`)
}

/** A copy of a store knows the processes of the original, which did not come with it. */
export async function removeAllRunners(store: { readonly schema: string }, tx: Executor): Promise<void> {
  await tx.run(sql`/* daemons.remove_all */
    delete from ${consumerNames(store).daemons}`)
}

/** What a host sees when it looks around. */
export interface View {
  /** Undefined if its own row is gone: another host has its node's name, or it was away for long. */
  readonly role: Role | undefined
  readonly consumers: ReadonlyMap<string, ConsumerView>
  /** The hot hosts that are alive. */
  readonly members: readonly Member[]
  /** Whether this is the host to become hot, because none is. */
  readonly isNext: boolean
}

export interface ConsumerView {
  readonly name: string
  readonly owner: string | null
  readonly fence: string
  readonly held: boolean
  readonly open: boolean
  readonly requested: boolean
}

interface MemberRow {
  readonly owner: string
  readonly role: Role
  readonly node: string | null
  readonly since: string
  readonly consumers: readonly string[]
}

/**
 * One statement: sign of life, renewal of all leases, and the view, which has the consumers of the other hosts, too: who is
 * to have what depends on all that each of them holds, and hosts that reckon with less than others do not agree with them.
 */
export async function look(
  log: Log,
  owner: string,
  wanted: readonly string[],
  leases: readonly { readonly lease: Lease; readonly leaseMs: number }[],
): Promise<View> {
  log.telemetry.count('consumer_rounds_total')
  const [row] = await log.database.run<{
    role: Role | null
    consumers: ConsumerView[] | null
    members: MemberRow[] | null
  }>(sql`/* consumers.look */
    with beat as (
      update ${consumerNames(log).daemons} as d
      set heartbeat_at = ${log.names.clock}(d.heartbeat_at),
        consumers = ${wanted}::text[],
        role = case
          when d.node is not null
            and d.heartbeat_at < ${log.names.clock}(d.heartbeat_at) - make_interval(secs => d.lease_ms / 1000.0)
            and exists (
              select
              from ${consumerNames(log).daemons} as o
              where o.owner <> d.owner
                and o.role = 'hot'
                and o.node is not null
                and o.heartbeat_at >= ${log.names.clock}(o.heartbeat_at) - make_interval(secs => o.lease_ms / 1000.0))
          then 'standby'
          else d.role
        end
      where d.owner = ${owner}::text
      returning d.role),
    ${renewedLeases(
      log,
      leases.map(({ lease, leaseMs }) => ({ ...lease, leaseMs })),
    )}
    select
      (select role from beat) as role,
      (select jsonb_agg(jsonb_build_object(
          'name', c.name,
          'owner', c.owner,
          'fence', c.fence::text,
          'held', c.owner is not null and c.lease_until > ${log.names.clock}(c.lease_until),
          'open', c.paused_at is null and c.state = 'active',
          'requested', exists (
            select
            from ${consumerNames(log).dead_letters} as l
            where l.consumer = c.name
              and l.retry_at <= ${log.names.clock}(l.retry_at))))
        from ${consumerNames(log).consumers} as c
        where c.name = any(${wanted}::text[])
          or exists (
            select
            from ${consumerNames(log).daemons} as d
            where c.name = any(d.consumers))) as consumers,
      (select jsonb_agg(jsonb_build_object(
          'owner', d.owner,
          'role', d.role,
          'node', d.node,
          'since', d.started_at,
          'consumers', d.consumers))
        from ${consumerNames(log).daemons} as d
        where d.heartbeat_at >= ${log.names.clock}(d.heartbeat_at) - make_interval(secs => d.lease_ms / 1000.0)) as members`)
  return viewOf(log, owner, wanted, row!)
}

function viewOf(
  log: Log,
  owner: string,
  wanted: readonly string[],
  row: { role: Role | null; consumers: readonly ConsumerView[] | null; members: readonly MemberRow[] | null },
): View {
  const sign = log.database.soleUser
  // Embedded, whoever came with another opening of the database is gone, whatever its last sign of life.
  const isAlive = (of: string): boolean => sign === undefined || of.startsWith(`${sign}/`)
  const others = (row.members ?? []).filter(member => member.owner !== owner && isAlive(member.owner))
  const role = row.role ?? undefined
  const members = others
    .filter(member => member.role === 'hot')
    .map(member => ({ owner: member.owner, consumers: new Set(member.consumers) as ReadonlySet<string> }))
  if (role === 'hot') members.push({ owner, consumers: new Set(wanted) })
  const self = (row.members ?? []).find(member => member.owner === owner)
  const standbys = [...others, ...(self === undefined ? [] : [self])].filter(member => member.role === 'standby')
  const byAge = (a: MemberRow, b: MemberRow): number => (`${a.since} ${a.owner}` < `${b.since} ${b.owner}` ? -1 : 1)
  const isHotNode = (member: MemberRow): boolean => member.role === 'hot' && member.node !== null
  const isNext = role === 'standby' && !others.some(isHotNode) && standbys.sort(byAge)[0]?.owner === owner
  const seen = (row.consumers ?? []).map(each => ({ ...each, held: each.held && isAlive(each.owner ?? '') }))
  return { role, consumers: new Map(seen.map(each => [each.name, each])), members, isNext }
}

/** Becomes hot, unless another node has done so meanwhile. */
export async function stepUp(log: Log, owner: string): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  return log.database.transaction(async tx => {
    await tx.run(sql`/* daemons.queue */
      select pg_advisory_xact_lock(${consumerNames(log).daemons.quoted}::regclass::oid::bigint)`)
    const rows = await tx.run(sql`/* daemons.step_up */
      update ${consumerNames(log).daemons}
      set role = 'hot'
      where owner = ${owner}::text
        and not exists (
          select
          from ${consumerNames(log).daemons} as o
          where o.role = 'hot'
            and o.node is not null
            and o.owner <> ${owner}::text
            and (${sign}::text is null or split_part(o.owner, '/', 1) = ${sign}::text)
            and o.heartbeat_at >= ${log.names.clock}(o.heartbeat_at) - make_interval(secs => o.lease_ms / 1000.0))
      returning owner`)
    return rows.length > 0
  })
}
