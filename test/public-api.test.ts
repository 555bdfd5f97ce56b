import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const entries: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).exports

test('users can import these names from the package, types with them, and at most 140', async () => {
  const names = namesIn('src/index.ts')

  expect(names.types).toEqual(words(types))
  expect(names.values).toEqual(words(functions + commonErrors))
  expect(names.types.length + names.values.length).toBeLessThanOrEqual(140)
})

test('the types of the other entries are few', () => {
  const found = Object.entries(entries)
    .filter(([entry, file]) => entry !== '.' && file.endsWith('.js'))
    .map(([entry, file]) => [entry, namesIn(sourceOf(file).slice(3)).types.join(' ')])

  expect(Object.fromEntries(found)).toEqual(furtherTypes)
})

test('users can import these values and no others', async () => {
  const names: Record<string, string[]> = {}
  for (const [entry, file] of Object.entries(entries)) {
    if (file.endsWith('.js')) names[entry] = Object.keys(await import(sourceOf(file))).sort()
  }

  expect(names).toEqual({
    '.': words(functions + commonErrors),
    './errors': words(`${errors} isRillflowError`),
    './http': ['errorResponse', 'eventStream', 'idempotencyKey', 'nodeListener'],
    './otel': ['connectOpenTelemetry'],
    './patch': words('append increment insert remove rename set unset'),
    './query': words(queries),
    './testing': [
      ...['CrashChangesOutcome', 'NotSettled', 'SpecificationFailed', 'countingIds', 'crashEverywhere', 'fakeClock'],
      ...['recordEffects', 'settle', 'specify', 'testStore'],
    ],
    './transactions': ['fromDrizzle', 'fromKysely', 'fromPostgresJs', 'fromPrisma'],
  })
})

const functions = `
  and batch between channels compensate complete contains defineAggregate defineClassAggregate defineCollection
  defineConfig defineDocumentProjection defineEvents defineHandler defineJoin defineProcessor
  defineProjectedAggregate defineProjection defineSchedule defineSubscription defineTableProjection defineUndo
  defineUpcaster eq gt gte increment isIn isNull lt lte ne not openStore or restoreBackup search startsWith
  transition
`

/** The types that programs write down: in the parameters of their own functions, or in what these return. */
const types = `
  Activity Aggregate AggregateInstance Decided HandledSession AnyTransaction AppendOptions AppendResult Clock Collection Config
  ConsumerStatus DeadLetter DeadLetterGroup Delivery DocumentProjection DocumentVersion Documents Emission Emit
  EmitOptions EventDefinitions EventFilter EventMap EventSequence EventsIn EventsOf Expected Failure FailureEnd
  FailureOptions ForeignTransaction From HandleOptions Handled Handler HandlerContext HandlerFailure HandlerResult
  Ids ImportedEvent InlineContext JoinContext Logger NewEvent Page PageOptions Placement Processor ProcessorContext
  Projection ProjectionContext PublishOptions Query ReadDocuments RecordedEvent Repository RetentionOptions Rows
  Runner RunnerDescription RunnerOptions Saved Schedule ScheduleContext Session Span Store StoreOptions
  StoredDocument StreamDescription Subscription TableProjection Tenancy TenantedStore TerminalFailure Trace
  Transaction Undo UntypedEvents Upcaster Workflow WorkflowState WorkflowStatus
`

const queries = `
  and at avg between compileQuery contains count elemMatch eq exists filterFrom gt gte headline isIn isNull like lower lt
  lte max min ne not or rank regex search startsWith sum
`

/** The errors that programs catch, or throw. The whole set is `rillflow/errors`. */
const commonErrors = `
  DocumentConflict DocumentExists DocumentNotFound IdempotencyConflict InvalidEvent isRillflowError NonRetryable
  OutcomeUnknown Overloaded RetryLater RillflowError TimedOut UniqueViolation VersionConflict
`

const errors = `
  Aborted AlreadySettled AuthenticationFailed BackupDamaged BackupExists BackupUnreadable BackupUnsupported
  BulkRefused CheckpointBeyondHead CheckpointMoved CircuitOpen CollectionNotFound CollectionNotSynced CollectionReadOnly ConnectionLost
  ConsumerNotFound DatabaseFailed DatabaseMissing DatabaseUnreachable DeadLetterConflict DeadLetterNotFound
  DeadLetterUnwritable DeadlinePassed DocumentConflict DocumentDeleted DatabaseReadOnly EngineFileMissing
  DocumentExists DocumentNotFound DocumentTooLarge DuplicateConsumer DuplicateEventId DuplicateHandler DuplicateSchedule EventGone EventTooLarge
  EventUndecodable ExecutionLost ExecutionNotParked ExecutionNotReady ExecutionRejected ExecutionTimeout FoldFailed FolderLocked
  FolderNotEmpty FolderNotWritable FolderVersionMismatch HandlerNotFound ConsumerTimeout HopsExceeded
  IdempotencyConflict IdempotencyMismatch ImportBypassesInline ImportMismatch InlineProjectionFailed
  InlineProjectionUnknown InsideTransaction InvalidAggregateState InvalidCursor InvalidDecision InvalidDocument
  InvalidEvent InvalidFilter InvalidName InvalidOption InvalidPatch InvalidProjectionValue InvalidQuery InvalidResult
  InvalidScheduleResult InvalidStepResult InvalidText JoinFailed JoinTimeout LaneNotParked LeaseLost LogRewound EventTypeUnhandled
  RunnerNotFound NonDeterministic NonRetryable NotInTransaction NotOne OutcomeUnknown Overloaded PatchMismatch
  ProjectionNotSynced RebuildImpossible RebuildRunning ResultTooLarge RetryLater RetryPending RillflowError
  ScheduleNotFound ScheduleTimeout StepTimeout SchemaDrift SchemaMissing SchemaNewer SchemaOutdated SerializationFailed
  ServerInRecovery ServerUnsupported SessionClosed SessionSaving SnapshotRefused StatementCancelled
  StatementTooComplex StoreClosed PermissionDenied PoolerUnsupported PreparedStatementLost SequenceBehind ServerFull
  SettingUnsupported StreamArchived StreamNotFound TenancyRequired TenantElsewhere TenantMoving TenantNotFound
  TenantRequired DirectoryMissing DirectoryUnreachable ForceRequired InvalidTenantName MoveHeldUp MoveNotEqual
  MoveRefused MoveTakenOver ServerNotFound ExportDamaged ExportExists ExportNewer ExportUnreadable ImportDiffers
  IntegerTooLarge NotExportable SchemaNotEmpty StreamTombstoned SubscriptionMismatch TimedOut TlsFailed TooManyEmitted
  TransactionClosed TransactionTimeout UniqueViolation UnknownLanguage UpcastFailed UpcasterCycle UpcasterFailed
  NumbersUnsafe TenancyNeeded ServerIncompatible ClusterRequired RebalanceFailed VersionConflict ViewsDepend WorkerCrashed WorkflowNotActive
`

const furtherTypes = {
  './errors': 'RefusedItem',
  './http': '',
  './otel': '',
  './patch': 'MergePatch Operation Patch',
  './query': 'BoundQuery CompiledQuery Condition Field FilterOptions GroupQuery Path Query Rows UntypedField',
  './testing':
    'AggregateSpecification CrashOptions CrashPoint CrashReport Effect EffectOptions Effects FakeClock HandlerSpecification ProjectionSpecification TestPlace TestStore TimeSpan',
  './transactions': '',
}

/** The names that a file exports, as it is written: types leave no trace at run time. */
function namesIn(file: string): { types: string[]; values: string[] } {
  const lists = readFileSync(file, 'utf8').matchAll(/^export (type )?\{([^}]*)\} from/gm)
  const names = [...lists].flatMap(([, type = '', list]) =>
    list!
      .split(',')
      .map(name => name.trim())
      .filter(name => name !== '')
      .map(name => (name.startsWith('type ') ? name : type + name)),
  )
  const isType = (name: string): boolean => name.startsWith('type ')
  return {
    types: words(names.filter(isType).join(' ').replaceAll('type ', '')),
    values: names.filter(name => !isType(name)).sort(),
  }
}

function words(text: string): string[] {
  return text.trim().split(/\s+/).sort()
}

function sourceOf(built: string): string {
  return built.replace('./dist/', '../src/').replace(/\.js$/, '.ts')
}
