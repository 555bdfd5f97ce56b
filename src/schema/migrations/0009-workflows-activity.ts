/**
 * The order of the activity: the same proof as that of the log (see the `settle` migration), on a sequence of its own.
 * Who writes activity announces a lower bound first; who follows it reads up to the least bound announced. So a watcher
 * sees each line once and in order, whatever commits when.
 */
import type { Quote } from '../migration.ts'

export function activityFunctions({ name, literal }: Quote): string[] {
  return [
    `create function ${name('workflow_announce')}() returns void
language plpgsql volatile
as ${literal(`
declare
  sequence_oid constant bigint := ${literal(name('workflow_activity_position'))}::regclass::oid::bigint;
  announced constant text := 'rillflow.announced_' || sequence_oid;
  bound bigint;
begin
  if coalesce(current_setting(announced, true), '') <> '' then
    return;
  end if;
  select case when is_called then last_value else last_value - 1 end
    into bound
    from ${name('workflow_activity_position')};
  perform pg_advisory_xact_lock_shared(
    ${name('signed32')}(sequence_oid),
    ${name('signed32')}(bound));
  perform set_config(announced, bound::text, true);
end
`)}`,
    `create function ${name('workflow_settle')}(
  out head bigint,
  out settled bigint,
  out timeline text,
  out session text)
language plpgsql volatile
as ${literal(`
declare
  sequence_oid constant bigint := ${literal(name('workflow_activity_position'))}::regclass::oid::bigint;
  bound bigint;
begin
  if pg_is_in_recovery() then
    raise exception 'workflow_settle() needs the primary' using errcode = 'RF001';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'workflow_settle() needs read committed' using errcode = 'RF002';
  end if;
  timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  session := pg_backend_pid() || coalesce(
    (select '@' || extract(epoch from backend_start) from pg_stat_get_activity(pg_backend_pid())), '');
  select case when is_called then last_value else last_value - 1 end
    into head
    from ${name('workflow_activity_position')};
  select min(head + ${name('signed32')}(locks.objid::bigint - head))
    into bound
    from pg_locks as locks
    where locks.locktype = 'advisory'
      and locks.database = (select oid from pg_database where datname = current_database())
      and locks.classid::bigint = sequence_oid
      and locks.objsubid = 2
      and locks.mode = 'ShareLock';
  settled := least(head, bound);
end
`)}`,
    // How long an execution of this rank had been ready when it began.
    `create function ${name('workflow_queued_ms')}(p_at timestamptz, p_rank bigint, p_priority integer) returns integer
language sql stable
return least(2147483647, greatest(0, (extract(epoch from p_at) * 1000)::bigint - p_rank + p_priority * 10000))::integer`,
    // Each owner has rows of its own, so that counting is no queue; a total is the sum of all.
    `create function ${name('workflow_count')}(p_owner text, p_names text[], p_by bigint[]) returns void
language plpgsql volatile
as ${literal(`
begin
  insert into ${name('workflow_counters')} as c (owner, name, value)
    select p_owner, u.name, u.by
    from unnest(p_names, p_by) as u(name, by)
    where u.by <> 0
    order by u.name
    on conflict (owner, name) do update
    set value = c.value + excluded.value;
end
`)}`,
  ]
}
