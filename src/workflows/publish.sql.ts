/**
 * `publish`: publishing from SQL, for triggers and for programs in other languages. It is part of the public interface: its
 * name, its arguments and its result stay.
 *
 *     select rillflow.publish('OrderPlaced', '{"total": 99}');
 *     select rillflow.publish('OrderShipped', to_jsonb(new), p_stream => 'order-' || new.id, p_user_id => current_user);
 *
 * It appends one event in the transaction of the caller, in the order that every append keeps, and returns the correlation
 * id of its workflow. Data is not checked against a schema of the events, because those are code: it must have the shape
 * that `p_schema_version` says.
 *
 * What can fail: a stream that is archived or deleted, and a type that an inline projection wants, whose code has to run
 * in a program. Each is an exception that says so; the transaction of the caller is then rolled back, as by any other error.
 */
import { plpgsql, type SqlFunction } from '../schema/plpgsql.ts'

export const publishFromSql: SqlFunction = plpgsql({ revision: 1 })`
  create function ~publish(
    p_type text,
    p_data jsonb default '{}',
    p_stream text default null,
    p_correlation_id text default null,
    p_user_id text default null,
    p_headers jsonb default null,
    p_schema_version integer default 1)
  returns text
  declare
    random constant text := replace(gen_random_uuid()::text, '-', '');
    id uuid;
    correlation text;
    target text;
    found_outcome text;
  begin
    if coalesce(p_type, '') = '' or octet_length(p_type) > 255 then
      raise exception 'The type of an event must be a text of 1 to 255 bytes.'
        using errcode = 'invalid_parameter_value';
    end if;
    if p_headers is not null and jsonb_typeof(p_headers) <> 'object' then
      raise exception 'The headers of an event must be a JSON object.'
        using errcode = 'invalid_parameter_value';
    end if;
    -- It begins with the time, as all ids do, so that the unique index grows at its end.
    id := (lpad(to_hex((extract(epoch from ~clock(p_type)) * 1000)::bigint), 12, '0')
      || '7' || substr(random, 1, 3) || '8' || substr(random, 4, 15))::uuid;
    correlation := coalesce(p_correlation_id, id::text);
    target := coalesce(p_stream, 'workflow-' || case
      when octet_length(correlation) <= 246 then correlation
      else encode(sha256(convert_to(correlation, 'UTF8')), 'hex') end);
    select a.outcome into found_outcome
      from ~append_one(
        p_stream => target,
        p_expected => 'any',
        p_version => null,
        p_allow_archived => false,
        p_ids => array[id],
        p_types => array[p_type],
        p_schema_versions => array[p_schema_version],
        p_data => jsonb_build_array(p_data),
        p_headers => jsonb_build_array(p_headers),
        p_correlations => array[correlation],
        p_causations => null,
        p_users => array[p_user_id]) as a;
    if found_outcome <> 'appended' then
      raise exception '%', case found_outcome
          when 'archived' then format('Stream "%s" is archived. Restore it first, or name another.', target)
          when 'tombstoned' then format('Stream "%s" was deleted, and its name cannot be used again.', target)
          when 'inline' then format('An inline projection wants events of type %s, so a program has to publish it.', p_type)
          else format('Stream "%s" refused the event: %s.', target, found_outcome) end
        using errcode = 'object_not_in_prerequisite_state';
    end if;
    -- A hint for readers on the default channel; others find the event when they look the next time.
    perform pg_notify('rillflow_events', n.nspname::text)
      from pg_class as c
      join pg_namespace as n on n.oid = c.relnamespace
      where c.oid = '~events'::regclass;
    return correlation;
  end`
