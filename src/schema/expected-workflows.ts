/** The part of workflows in `expected.ts`; generated with it. */
import type { SchemaShape } from './shape.ts'

export const expectedWorkflows: SchemaShape = {
  tables: {
    workflow_activity: {
      columns: {
        position: 'bigint not null',
        event_position: 'bigint not null',
        at: 'timestamp with time zone not null default clock_timestamp()',
        execution: 'uuid not null',
        version: 'integer not null',
        attempt: 'integer not null',
        queued_ms: 'integer',
        running_ms: 'integer',
        kind: 'text collate "C" not null',
        outcome: 'text',
        handler: 'text collate "C" not null',
        correlation_id: 'text collate "C" not null',
        worker: 'text',
        result: 'jsonb',
        error: 'jsonb',
      },
      indexes: {
        workflow_activity_correlation: 'btree (correlation_id, "position")',
        workflow_activity_handler:
          "btree (handler, \"position\") WHERE (kind = ANY (ARRAY['completed'::text, 'failed'::text, 'parked'::text]))",
        workflow_activity_pkey: 'primary key btree ("position")',
      },
    },
    workflow_branches: {
      columns: {
        position: 'bigint not null',
        batch_id: 'uuid not null',
        index: 'integer not null',
        open: 'integer not null',
        size: 'integer not null',
        outcome: 'text',
        correlation_id: 'text collate "C" not null',
      },
      indexes: {
        workflow_branches_pkey: 'primary key btree (batch_id, index, correlation_id)',
      },
    },
    workflow_counters: {
      columns: {
        active: 'bigint not null default 0',
        cancelled: 'bigint not null default 0',
        completed: 'bigint not null default 0',
        dispatched: 'bigint not null default 0',
        events: 'bigint not null default 0',
        failed: 'bigint not null default 0',
        workflows: 'bigint not null default 0',
        owner: 'text collate "C" not null',
      },
      indexes: {
        workflow_counters_pkey: 'primary key btree (owner)',
      },
    },
    workflow_executions: {
      columns: {
        position: 'bigint not null',
        rank: 'bigint not null',
        fence: 'bigint not null default 0',
        undo_id: 'bigint',
        queued_at: 'timestamp with time zone not null default clock_timestamp()',
        started_at: 'timestamp with time zone',
        run_at: 'timestamp with time zone',
        deadline_at: 'timestamp with time zone',
        expires_at: 'timestamp with time zone',
        id: 'uuid not null',
        join_id: 'uuid',
        route: 'integer not null',
        attempt: 'integer not null default 0',
        crashes: 'integer not null default 0',
        ran_ms: 'integer not null default 0',
        is_retry: 'boolean not null default false',
        is_rejected: 'boolean not null default false',
        state: 'text collate "C" not null',
        correlation_id: 'text collate "C" not null',
        lane: 'text collate "C"',
        worker: 'text collate "C"',
      },
      indexes: {
        workflow_executions_correlation: 'btree (correlation_id)',
        workflow_executions_due: 'btree (run_at) WHERE (run_at IS NOT NULL)',
        workflow_executions_idle:
          "btree (route, state) WHERE (state = ANY (ARRAY['delayed'::text, 'suspended'::text, 'blocked'::text, 'parked'::text, 'stopping'::text]))",
        workflow_executions_lane: 'btree (lane, "position") WHERE (lane IS NOT NULL)',
        workflow_executions_pkey: 'primary key btree (id)',
        workflow_executions_ready: "btree (route, rank, id) WHERE (state = 'ready'::text)",
        workflow_executions_taken:
          "btree (lane, state) WHERE ((lane IS NOT NULL) AND (state = ANY (ARRAY['running'::text, 'held'::text])))",
        workflow_executions_unkeyed: 'btree (route, "position") WHERE (state = \'unkeyed\'::text)',
        workflow_executions_worker: 'btree (route, worker) WHERE (worker IS NOT NULL)',
      },
    },
    workflow_join_entries: {
      columns: {
        position: 'bigint',
        join_id: 'uuid not null',
        index: 'integer not null',
        outcome: 'text not null',
      },
      indexes: {
        workflow_join_entries_pkey: 'primary key btree (join_id, index)',
      },
    },
    workflow_joins: {
      columns: {
        position: 'bigint not null',
        deadline_at: 'timestamp with time zone',
        opened_at: 'timestamp with time zone not null default clock_timestamp()',
        closed_at: 'timestamp with time zone',
        id: 'uuid not null',
        batch_id: 'uuid not null',
        route: 'integer not null',
        size: 'integer not null',
        arrived: 'integer not null default 0',
        failed: 'integer not null default 0',
        empty: 'integer not null default 0',
        state: "text not null default 'open'::text",
        correlation_id: 'text collate "C" not null',
        outer_batches: "jsonb not null default '[]'::jsonb",
      },
      indexes: {
        workflow_joins_batch: 'btree (batch_id)',
        workflow_joins_correlation: "btree (correlation_id) WHERE (state = 'open'::text)",
        workflow_joins_deadline: "btree (deadline_at) WHERE (state = 'open'::text)",
        workflow_joins_pkey: 'primary key btree (id)',
      },
    },
    workflow_lanes: {
      columns: {
        open: 'integer not null',
        active: 'integer not null',
        width: 'integer not null',
        granted: 'integer not null',
        ordered: 'boolean not null',
        parked: 'boolean not null default false',
        parked_by: 'uuid',
        lane: 'text collate "C" not null',
      },
      indexes: {
        workflow_lanes_parked: 'btree (lane) WHERE parked',
        workflow_lanes_pkey: 'primary key btree (lane)',
      },
    },
    workflow_routes: {
      columns: {
        start_position: 'bigint not null',
        backfill_position: 'bigint',
        rate_at: 'timestamp with time zone',
        paused_at: 'timestamp with time zone',
        retired_at: 'timestamp with time zone',
        created_at: 'timestamp with time zone not null default now()',
        rate_tokens: 'double precision',
        id: 'integer not null',
        version: 'integer not null',
        priority: 'integer not null',
        delay_ms: 'bigint not null',
        deadline_ms: 'bigint',
        timeout_ms: 'integer not null',
        concurrency: 'integer',
        rate_limit: 'integer',
        rate_per_ms: 'integer',
        handler: 'text collate "C" not null',
        kind: 'text not null',
        types: 'text[]',
        digest: 'text not null',
        definition: 'jsonb not null',
      },
      indexes: {
        workflow_routes_handler: 'unique btree (handler, version)',
        workflow_routes_pkey: 'primary key btree (id)',
      },
    },
    workflow_schedule_runs: {
      columns: {
        due_at: 'timestamp with time zone not null',
        started_at: 'timestamp with time zone not null',
        ended_at: 'timestamp with time zone not null default clock_timestamp()',
        is_manual: 'boolean not null',
        schedule: 'text collate "C" not null',
        outcome: 'text not null',
        correlation_id: 'text collate "C" not null',
        event_ids: "uuid[] not null default '{}'::uuid[]",
        error: 'jsonb',
      },
      indexes: {
        workflow_schedule_runs_pkey: 'primary key btree (schedule, due_at, is_manual)',
      },
    },
    workflow_schedules: {
      columns: {
        next_at: 'timestamp with time zone',
        begun_at: 'timestamp with time zone',
        last_at: 'timestamp with time zone',
        paused_at: 'timestamp with time zone',
        claimed_until: 'timestamp with time zone',
        created_at: 'timestamp with time zone not null default now()',
        fence: 'bigint not null default 0',
        name: 'text collate "C" not null',
        owner: 'text collate "C"',
        last_outcome: 'text',
        digest: 'text not null',
        triggers: "timestamp with time zone[] not null default '{}'::timestamp with time zone[]",
        definition: 'jsonb not null',
      },
      indexes: {
        workflow_schedules_pkey: 'primary key btree (name)',
      },
    },
    workflow_signals: {
      columns: {
        position: 'bigint not null',
        execution: 'uuid not null',
        correlation_id: 'text collate "C" not null',
        handler: 'text collate "C" not null',
      },
      indexes: {
        workflow_signals_pkey: 'primary key btree (correlation_id, handler, "position")',
      },
    },
    workflow_steps: {
      columns: {
        position: 'bigint',
        at: 'timestamp with time zone not null',
        started_at: 'timestamp with time zone',
        due_at: 'timestamp with time zone',
        execution: 'uuid not null',
        track: 'integer not null',
        ordinal: 'integer not null',
        turn: 'integer',
        calls: 'integer',
        kind: 'text collate "C" not null',
        name: 'text collate "C" not null',
        state: 'text not null',
        result: 'jsonb',
      },
      indexes: {
        workflow_steps_pkey: 'primary key btree (execution, kind, name)',
      },
    },
    workflow_undos: {
      columns: {
        id: 'bigint not null',
        position: 'bigint not null',
        at: 'timestamp with time zone not null default clock_timestamp()',
        execution: 'uuid not null',
        is_known: 'boolean not null default false',
        correlation_id: 'text collate "C" not null',
        handler: 'text collate "C" not null',
        kind: 'text collate "C" not null',
        step: 'text collate "C" not null',
        state: "text not null default 'recorded'::text",
        data: 'jsonb',
        result: 'jsonb',
      },
      indexes: {
        workflow_undos_correlation: 'btree (correlation_id, id)',
        workflow_undos_pkey: 'primary key btree (id)',
        workflow_undos_step: 'unique btree (execution, kind, step)',
      },
    },
    workflow_waits: {
      columns: {
        position: 'bigint not null',
        since: 'bigint not null',
        execution: 'uuid not null',
        ordinal: 'integer not null',
        kind: 'text collate "C" not null',
        name: 'text collate "C" not null',
        correlation_id: 'text collate "C" not null',
        type: 'text collate "C"',
        handler: 'text collate "C"',
        child: 'text collate "C"',
        match: 'jsonb',
      },
      indexes: {
        workflow_waits_child: 'btree (child) WHERE (child IS NOT NULL)',
        workflow_waits_pkey: 'primary key btree (execution, kind, name)',
        workflow_waits_signal: 'btree (correlation_id, type) WHERE (type IS NOT NULL)',
      },
    },
    workflows: {
      columns: {
        first_position: 'bigint not null',
        last_position: 'bigint not null',
        started_at: 'timestamp with time zone not null default now()',
        updated_at: 'timestamp with time zone not null default now()',
        open: 'integer not null default 0',
        is_spreading: 'boolean not null default false',
        correlation_id: 'text collate "C" not null',
        state: "text not null default 'active'::text",
        last_type: 'text collate "C" not null',
        parent: 'text collate "C"',
        reason: 'text',
        attributes: 'jsonb',
      },
      indexes: {
        workflows_attributes: 'gin (attributes jsonb_path_ops) WHERE (attributes IS NOT NULL)',
        workflows_first_position: 'btree (first_position)',
        workflows_parent: 'btree (parent, first_position) WHERE (parent IS NOT NULL)',
        workflows_pkey: 'primary key btree (correlation_id)',
        workflows_spreading: 'btree (correlation_id) WHERE is_spreading',
      },
    },
  },
  sequences: {
    workflow_activity_position: 'bigint increment 1 minvalue 1 maxvalue 9007199254740991 cache 1 no cycle',
    workflow_routes_id: 'bigint increment 1 minvalue 1 maxvalue 9007199254740991 cache 1 no cycle',
    workflow_undos_id: 'bigint increment 1 minvalue 1 maxvalue 9007199254740991 cache 1 no cycle',
  },
  functions: {
    workflow_admit:
      '(p_owner text, p_ids text[], p_wanted boolean[], p_counts integer[], p_firsts bigint[], p_lasts bigint[], p_types text[], p_parents text[]) returns TABLE(correlation_id text, state text, is_new boolean) language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_advance:
      '(p_owner text, p_lanes text[], p_next uuid[], p_grace_ms integer, OUT begun uuid[]) returns uuid[] language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set enable_bitmapscan=off set jit=off',
    workflow_announce: '() returns void language plpgsql volatile set jit=off',
    workflow_assign:
      '(p_ids uuid[], p_lanes text[], OUT assigned integer) returns integer language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_cancel:
      '(p_owner text, p_correlation text, p_dispatcher text, p_state text, p_reason text, p_except uuid, OUT cancelled boolean) returns boolean language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_claim:
      '(p_owner text, p_fence bigint, p_routes integer[], p_limit integer, p_ahead integer, p_grace_ms integer) returns TABLE(execution workflow_executions, event events, edited jsonb) language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set enable_bitmapscan=off set jit=off',
    workflow_complete:
      '(p_owner text, p_correlations text[], p_lanes text[], p_ids uuid[], p_fences bigint[], p_kinds text[], p_recorded text[], p_outcomes text[], p_delays integer[], p_running_ms integer[], p_results jsonb, p_errors jsonb, p_next uuid[], p_grace_ms integer, p_clean boolean, OUT accepted uuid[], OUT begun uuid[]) returns record language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_count: '(p_owner text, p_names text[], p_by bigint[]) returns void language plpgsql volatile set jit=off',
    workflow_dispatch_page:
      '(p_consumer text, p_fence bigint, p_version integer, p_reached bigint, p_first bigint, p_checkpoint bigint, p_workflows text[], p_wanted boolean[], p_counts integer[], p_firsts bigint[], p_lasts bigint[], p_types text[], p_ids uuid[], p_positions bigint[], p_routes integer[], p_correlations text[], p_worker text, p_worker_fence bigint, p_worker_routes integer[], p_limit integer, p_grace_ms integer, p_states text[], p_running_ms integer[], p_began_at timestamp with time zone, p_watched text[], OUT outcome text, OUT is_paused boolean, OUT is_idle boolean, OUT ready integer, OUT begun uuid[], OUT begun_at timestamp with time zone, OUT settled jsonb) returns record language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set lock_timeout=10s set jit=off',
    workflow_draw: '(p_count integer, OUT drawn bigint[]) returns bigint[] language plpgsql volatile set jit=off',
    workflow_draw_route: '(p_count integer, OUT drawn bigint[]) returns bigint[] language plpgsql volatile set jit=off',
    workflow_draw_undo: '(p_count integer, OUT drawn bigint[]) returns bigint[] language plpgsql volatile set jit=off',
    workflow_enqueue:
      '(p_owner text, p_ids uuid[], p_positions bigint[], p_routes integer[], p_correlations text[], p_states text[], p_lanes text[], p_joins uuid[], p_undos bigint[], p_retries boolean[], OUT enqueued integer) returns integer language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_hold:
      '(p_correlations text[], p_lanes text[], p_ids uuid[], p_fences bigint[], OUT accepted uuid[]) returns uuid[] language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_hold_lanes:
      '(p_correlation text, OUT lanes text[]) returns text[] language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_make: '(p_owner text, p_correlation text) returns void language plpgsql volatile set jit=off',
    workflow_queued_ms:
      '(p_at timestamp with time zone, p_rank bigint, p_priority integer) returns integer language sql immutable',
    workflow_rank: '(p_at timestamp with time zone, p_priority integer) returns bigint language sql immutable',
    workflow_remove:
      '(p_owner text, p_correlation text, p_ids uuid[], p_lanes text[], p_joins integer) returns void language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_settle:
      '(OUT head bigint, OUT settled bigint, OUT timeline text, OUT session text) returns record language plpgsql volatile set jit=off',
    workflow_settled:
      '(p_watched text[], OUT settled jsonb) returns jsonb language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_stopped:
      '(p_owner text, p_correlation text, p_ids uuid[], OUT removed integer) returns integer language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_wake:
      '(p_ids uuid[], p_patient boolean DEFAULT true, OUT woken integer) returns integer language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
    workflow_widen:
      '(p_routes integer[], p_lanes text[], p_retries boolean[]) returns void language plpgsql volatile set enable_seqscan=off set enable_hashjoin=off set enable_mergejoin=off set plan_cache_mode=force_generic_plan set jit=off',
  },
}
