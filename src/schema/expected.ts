/**
 * Every object of the library itself, in PostgreSQL's words. Generated: change a table or a function, then run
 * RILLFLOW_UPDATE=1 npx vitest run --project postgres-18 test/schema
 */
import { expectedWorkflows } from './expected-workflows.ts'
import type { SchemaShape } from './shape.ts'

const others: SchemaShape = {
  tables: {
    audit: {
      columns: {
        started_at: 'timestamp with time zone not null',
        ended_at: 'timestamp with time zone',
        id: 'uuid not null',
        actor: 'text collate "C" not null',
        action: 'text collate "C" not null',
        target: 'text collate "C"',
        outcome: "text not null default 'running'::text",
        parameters: "jsonb not null default '{}'::jsonb",
        result: 'jsonb',
        error: 'jsonb',
      },
      indexes: {
        audit_pkey: 'primary key btree (id)',
        audit_started_at: 'btree (started_at, id)',
      },
    },
    consumers: {
      columns: {
        checkpoint: 'bigint not null',
        fence: 'bigint not null default 0',
        lease_until: 'timestamp with time zone',
        retry_at: 'timestamp with time zone',
        paused_at: 'timestamp with time zone',
        created_at: 'timestamp with time zone not null default now()',
        progressed_at: 'timestamp with time zone not null default now()',
        seen_at: 'timestamp with time zone not null default now()',
        attempts: 'integer not null default 0',
        batch_limit: 'integer',
        name: 'text collate "C" not null',
        kind: 'text not null',
        state: "text not null default 'active'::text",
        owner: 'text',
        definition: "jsonb not null default '{}'::jsonb",
        last_error: 'jsonb',
      },
      indexes: {
        consumers_pkey: 'primary key btree (name)',
      },
    },
    dead_letters: {
      columns: {
        position: 'bigint not null',
        version: 'bigint not null',
        fence: 'bigint not null default 0',
        first_failed_at: 'timestamp with time zone not null default now()',
        last_failed_at: 'timestamp with time zone not null default now()',
        retry_at: 'timestamp with time zone',
        event_id: 'uuid not null',
        attempts: 'integer not null',
        consumer: 'text collate "C" not null',
        state: "text not null default 'open'::text",
        stream: 'text collate "C" not null',
        type: 'text collate "C" not null',
        note: 'text',
        errors: 'jsonb not null',
        history: "jsonb not null default '[]'::jsonb",
        execution: 'uuid',
        correlation_id: 'text collate "C"',
        reason: 'text',
        fingerprint: 'text collate "C"',
        edited: 'jsonb',
        failures: 'integer not null default 1',
      },
      indexes: {
        dead_letters_correlation:
          "btree (correlation_id) WHERE ((correlation_id IS NOT NULL) AND (state = ANY (ARRAY['open'::text, 'retrying'::text])))",
        dead_letters_execution: 'btree (execution) WHERE (execution IS NOT NULL)',
        dead_letters_latest: 'btree (state, last_failed_at, "position")',
        dead_letters_owner: 'btree (state, consumer, "position")',
        dead_letters_parked:
          "btree (consumer, stream, \"position\") WHERE ((reason = 'park'::text) AND (state = ANY (ARRAY['open'::text, 'retrying'::text, 'parked'::text])))",
        dead_letters_pkey: 'primary key btree (consumer, event_id)',
        dead_letters_position: 'btree (consumer, "position")',
        dead_letters_requested: 'btree (consumer, retry_at) WHERE (retry_at IS NOT NULL)',
        dead_letters_state: 'btree (state) WHERE (correlation_id IS NOT NULL)',
      },
    },
    deliveries: {
      columns: {
        position: 'bigint not null',
        acked_at: 'timestamp with time zone',
        retry_at: 'timestamp with time zone',
        first_failed_at: 'timestamp with time zone',
        deliveries: 'integer not null',
        consumer: 'text collate "C" not null',
        last_error: 'jsonb',
      },
      indexes: {
        deliveries_pkey: 'primary key btree (consumer, "position")',
      },
    },
    events: {
      columns: {
        position: 'bigint not null',
        version: 'bigint not null',
        created_at: 'timestamp with time zone not null',
        event_id: 'uuid not null',
        schema_version: 'integer not null',
        bytes: 'integer default ((octet_length((data)::text) + COALESCE(octet_length((headers)::text), 0)) + 200)',
        stream: 'text collate "C" not null',
        type: 'text collate "C" not null',
        correlation_id: 'text collate "C" not null',
        causation_id: 'text collate "C"',
        user_id: 'text collate "C"',
        data: 'jsonb not null',
        headers: 'jsonb',
      },
      indexes: {
        events_correlation: 'btree (correlation_id, "position")',
        events_created_at: 'brin (created_at)',
        events_event_id: 'unique btree (event_id)',
        events_pkey: 'primary key btree ("position")',
        events_stream_version: 'unique btree (stream, version)',
      },
    },
    idempotency_keys: {
      columns: {
        created_at: 'timestamp with time zone not null default now()',
        key: 'text collate "C" not null',
        digest: 'text not null',
        event_ids: 'uuid[] not null',
        documents: 'jsonb',
      },
      indexes: {
        idempotency_keys_pkey: 'primary key btree (key)',
      },
    },
    imports: {
      columns: {
        events: 'bigint not null',
        updated_at: 'timestamp with time zone not null default now()',
        name: 'text collate "C" not null',
        digest: 'text not null',
      },
      indexes: {
        imports_pkey: 'primary key btree (name)',
      },
    },
    inline_changes: {
      columns: {
        changes: 'bigint not null',
        id: 'integer not null',
      },
      indexes: {
        inline_changes_pkey: 'primary key btree (id)',
      },
    },
    inline_projections: {
      columns: {
        activated_at: 'timestamp with time zone not null default now()',
        version: 'integer not null',
        name: 'text collate "C" not null',
        types: 'text[]',
      },
      indexes: {
        inline_projections_pkey: 'primary key btree (name)',
      },
    },
    migrations: {
      columns: {
        applied_at: 'timestamp with time zone not null default now()',
        id: 'integer not null',
        breaking: 'boolean not null',
        name: 'text not null',
        checksum: 'text not null',
      },
      indexes: {
        migrations_pkey: 'primary key btree (id)',
      },
    },
    runners: {
      columns: {
        fence: 'bigint not null',
        heartbeat_at: 'timestamp with time zone not null',
        started_at: 'timestamp with time zone not null',
        lease_ms: 'integer not null',
        concurrency: 'integer',
        id: 'text collate "C" not null',
        role: 'text not null',
        name: 'text collate "C"',
        consumers: 'text[] not null',
        routes: 'integer[] not null',
        process: 'jsonb',
      },
      indexes: {
        runners_name: 'unique btree (name) WHERE (name IS NOT NULL)',
        runners_pkey: 'primary key btree (id)',
      },
    },
    snapshots: {
      columns: {
        version: 'bigint not null',
        created_at: 'timestamp with time zone not null default now()',
        event_id: 'uuid not null',
        state_version: 'integer not null',
        stream: 'text collate "C" not null',
        body: 'json not null',
      },
      indexes: {
        snapshots_pkey: 'primary key btree (stream, state_version)',
      },
    },
    stream_aliases: {
      columns: {
        created_at: 'timestamp with time zone not null default now()',
        alias: 'text collate "C" not null',
        stream: 'text collate "C" not null',
      },
      indexes: {
        stream_aliases_pkey: 'primary key btree (alias)',
      },
    },
    streams: {
      columns: {
        version: 'bigint not null',
        created_at: 'timestamp with time zone not null default now()',
        archived_at: 'timestamp with time zone',
        tombstoned_at: 'timestamp with time zone',
        stream: 'text collate "C" not null',
        reason: 'text',
      },
      indexes: {
        streams_archived: 'btree (stream) WHERE (archived_at IS NOT NULL)',
        streams_pkey: 'primary key btree (stream)',
      },
    },
  },
  sequences: {
    consumers_fence: 'bigint increment 1 minvalue 1 maxvalue 9007199254740991 cache 1 no cycle',
    events_position: 'bigint increment 1 minvalue 1 maxvalue 9007199254740991 cache 1 no cycle',
  },
  functions: {
    announce: '() returns void language plpgsql volatile set jit=off',
    append_batch:
      '(p_streams text[], p_part_appends integer[], p_part_streams integer[], p_part_expected text[], p_part_versions bigint[], p_part_counts integer[], p_allow_archived boolean[], p_check_ids boolean[], p_keys text[], p_digests text[], p_is_simple boolean, p_waits boolean, p_event_parts integer[], p_event_numbers integer[], p_ids uuid[], p_types text[], p_schema_versions integer[], p_data jsonb, p_headers jsonb, p_correlations text[], p_causations text[], p_users text[], OUT outcomes text[], OUT failed_parts integer[], OUT versions bigint[], OUT positions bigint[]) returns record language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    append_check:
      '(p_streams text[], p_part_appends integer[], p_part_streams integer[], p_part_expected text[], p_part_versions bigint[], p_part_counts integer[], p_allow_archived boolean[], p_check_ids boolean[], p_keys text[], p_digests text[], p_is_simple boolean, p_waits boolean, p_event_parts integer[], p_runs_inline boolean, p_ids uuid[], p_types text[], p_data jsonb, OUT outcomes text[], OUT failed_parts integer[], OUT versions bigint[], OUT base bigint[], OUT created_at timestamp with time zone, OUT inline_names text[], OUT inline_versions integer[]) returns record language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    append_check_one:
      '(p_stream text, p_expected text, p_version bigint, p_count integer, p_types text[], OUT outcome text, OUT version bigint, OUT created_at timestamp with time zone) returns record language plpgsql volatile set jit=off',
    append_one:
      '(p_stream text, p_expected text, p_version bigint, p_allow_archived boolean, p_ids uuid[], p_types text[], p_schema_versions integer[], p_data jsonb, p_headers jsonb, p_correlations text[], p_causations text[], p_users text[], OUT outcome text, OUT version bigint, OUT last_position bigint) returns record language plpgsql volatile set jit=off',
    append_store:
      '(p_refused text, p_streams text[], p_base bigint[], p_created_at timestamp with time zone, p_event_parts integer[], p_event_numbers integer[], p_ids uuid[], p_types text[], p_schema_versions integer[], p_data jsonb, p_headers jsonb, p_correlations text[], p_causations text[], p_users text[], OUT positions bigint[]) returns bigint[] language plpgsql volatile set jit=off',
    appended_at:
      '(OUT moment timestamp with time zone) returns timestamp with time zone language plpgsql volatile set jit=off',
    clock: '(p_column anyelement) returns timestamp with time zone language plpgsql immutable',
    consumers_draw: '(p_count integer, OUT drawn bigint[]) returns bigint[] language plpgsql volatile set jit=off',
    draw: '(p_count integer, OUT drawn bigint[]) returns bigint[] language plpgsql volatile set jit=off',
    later:
      '(p_at timestamp with time zone, p_ms double precision) returns timestamp with time zone language plpgsql immutable',
    publish:
      "(p_type text, p_data jsonb DEFAULT '{}'::jsonb, p_stream text DEFAULT NULL::text, p_correlation_id text DEFAULT NULL::text, p_user_id text DEFAULT NULL::text, p_headers jsonb DEFAULT NULL::jsonb, p_schema_version integer DEFAULT 1) returns text language plpgsql volatile set jit=off",
    settle:
      '(OUT head bigint, OUT settled bigint, OUT timeline text, OUT session text) returns record language plpgsql volatile set jit=off',
    signed32: '(value bigint) returns integer language sql immutable',
    stamp: '(p_key text, p_at timestamp with time zone) returns jsonb language plpgsql immutable',
    state_entry:
      '(p_at timestamp with time zone, p_from text, p_to text, p_note text) returns jsonb language plpgsql immutable',
    timeline: '(p_column anyelement) returns text language plpgsql immutable',
    to_ms: '(p_at timestamp with time zone) returns timestamp with time zone language plpgsql immutable',
  },
}

export const expected: SchemaShape = {
  tables: { ...others.tables, ...expectedWorkflows.tables },
  sequences: { ...others.sequences, ...expectedWorkflows.sequences },
  functions: { ...others.functions, ...expectedWorkflows.functions },
}
