/** The public calls of the Rust edition, by type or module: each has a place in docs/coming-from-rillflow-rust.md. */
export const rustCalls: Readonly<Record<string, string>> = {
  AggregateSession: 'load load_with_snapshot commit commit_with_options commit_for commit_and_snapshot',
  AggregateRepository:
    'new events with_validator load commit commit_for_aggregate load_with_snapshot commit_and_snapshot',
  BatchWriter: 'new upsert update_expected delete flush',
  SessionContext: 'builder merge_headers',
  SessionContextBuilder: 'tenant maybe_tenant correlation_id causation_id headers allow_archived_stream build',
  Documents:
    'with_tenant upsert get get_with_metadata put update patch_fields patch get_field query execute_compiled session bulk_upsert bulk_update_expected bulk_delete',
  DocumentSession:
    'aggregates load store store_with_expected delete delete_with_expected merge_event_headers set_event_headers set_event_causation_id set_event_correlation_id allow_archived_stream_appends context context_mut set_event_idempotency_key enqueue_event enqueue_events enable_event_advisory_locks disable_event_advisory_locks append_events append_events_with enqueue_aggregate enqueue_snapshot save_changes clear',
  Event: 'new',
  Events:
    'with_tenant with_upcasters archive_backend include_archived with_archived hot_only set_include_archived with_advisory_locks enable_inline_projections fetch_after_tx head_sequence_tx head_sequence load_stream_envelopes append_stream append_stream_with_headers read_stream read_stream_envelopes append_with builder archive_stream_before append_tombstone',
  events: 'register_upcaster register_inline_projection',
  AppendBuilder: 'expected headers idempotency_key causation_id correlation_id allow_archived_stream push extend send',
  Live: 'new with_ttl query_scalar_i64_cached invalidate',
  HotColdConfig: 'new',
  ProjectionWorkerConfig: 'default_node_name',
  ProjectionDaemon:
    'new builder with_upcasters register run_loop tick_once tick_all_once run_until_idle list dlq_list dlq_delete dlq_requeue status metrics pause resume reset_checkpoint rebuild',
  ProjectionDaemonBuilder:
    'schema tenant_strategy tenant_resolver batch_size lease_ttl cluster backoff archive_backend include_archived register upcasters build',
  Projections: 'replay',
  ViewProjection: 'new group_by count sum',
  CustomProjection: 'new on args',
  DocumentQueryContext:
    'new set_duplicated_fields full_text_search full_text_search_lang filter filter_if order_by order_by_number order_by_from order_by_number_from limit offset page include_deleted only_deleted select_fields select_field group_by group_by_from count sum avg min max include select_from build_query',
  JsonPath: 'parts',
  Predicate: 'eq ne gt ge lt le contains in exists regex iregex between negate and or',
  DocumentQuery:
    'filter filter_if order_by order_by_number limit offset page include_deleted only_deleted select_fields select_field fetch_all fetch_optional fetch_one fetch_first',
  DuplicatedFieldType: 'as_sql',
  IndexType: 'as_sql',
  DuplicatedField: 'new with_nullable with_indexed with_index_type with_transform extraction_sql',
  TenantColumnType: 'as_sql',
  TenantColumn: 'new text uuid',
  SchemaManager: 'new with_archive_backend plan apply sync',
  SchemaConfig: 'single_tenant with_base_schema conjoined_with with_duplicated_fields add_duplicated_field',
  TenancyMode: 'schema_per_tenant conjoined',
  TenantSchema: 'new',
  SchemaPlan: 'is_empty actions warnings',
  SchemaAction: 'description sql',
  schema: 'qualified_name quote_ident',
  AggregateFolder: 'new',
  Snapshotter: 'new tick_once run_until_idle metrics',
  TenantStrategy: 'conjoined tenant_column',
  Store:
    'connect builder docs session document_session session_builder session_defaults set_session_defaults with_session_defaults archive_redirect_enabled set_archive_redirect archive_backend include_archived_by_default set_include_archived_by_default session_context ensure_tenant drop_tenant tenant_exists tenant_strategy tenant_resolver forget_tenant_schema forget_tenant events live projections batch subscriptions schema pool upcaster_registry pool_health resolve_stream_alias pool_metrics update_pool_metrics',
  StoreBuilder:
    'new max_connections connect_timeout session_defaults session_advisory_locks session_context tenant_resolver tenant_strategy archive_backend include_archived_by_default archive_redirect_enabled upcasters prepared_statement_cache_size allow_missing_tenant build',
  SessionBuilder:
    'headers merge_headers causation_id correlation_id idempotency_key advisory_locks build tenant_resolver allow_missing_tenant',
  Subscriptions: 'new new_with_schema with_tenant create_or_update subscribe',
  SubscriptionHandle: 'checkpoint ack ack_in_tx pause resume',
  testing: 'migrate_core_schema ensure_counters_table',
  tracing: 'init_otlp_from_env',
  TraceSink: 'new record mermaid',
  UpcasterRegistry: 'new register register_async has_async_upcaster describe find_path upcast_sync upcast_with_pool',
  UpcasterBuilder: 'new from_version to handler build',
  AsyncUpcasterBuilder: 'new from_version to handler build',
  metrics:
    'metrics snapshot_daemon_clusters record_doc_read record_doc_write record_doc_conflict record_proj_events_processed record_subs_delivered record_subs_pending record_snapshot_candidates record_snapshot_max_gap record_event_appends record_event_conflict record_archive_mark record_archive_reactivate record_archive_moved record_archive_move set_archive_hot_bytes record_pool_gauges record_daemon_node_state clear_daemon_node_state render_prometheus record_query_duration record_projection_batch set_slow_query_threshold slow_query_threshold set_slow_query_explain slow_query_explain_enabled',
}
