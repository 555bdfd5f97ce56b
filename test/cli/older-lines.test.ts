import { expect, test } from 'vitest'
import { findCommand, isGroup, parseLine } from '../../src/cli/arguments.ts'
import { root } from '../../src/cli/commands/commands.ts'

/** The line of the program of today that a line of before is read as: its command, arguments and options. */
async function readAs(line: string): Promise<string> {
  const { path, entry, rest } = await findCommand(root, line.split(' '))
  if (isGroup(entry)) throw new Error(`${line} is a noun`)
  parseLine(await entry.load(), path, rest)
  return [...path, ...rest].join(' ')
}

test.each([
  ['schema-plan --database-url postgres://localhost/shop', 'schema plan --database-url postgres://localhost/shop'],
  ['schema-sync --schema public', 'schema sync --schema public'],
  ['schema-down --force', 'schema down --force'],
  ['tenants ensure acme', 'tenants ensure acme'],
  [
    'tenants archive acme --output backups/acme --include-snapshots',
    'tenants export acme --output backups/acme --include-snapshots',
  ],
  ['tenants drop acme --force', 'tenants drop acme --force'],
  ['projections status sales', 'consumers status sales'],
  ['projections reset-checkpoint sales 0', 'consumers reset sales 0'],
  ['projections rebuild sales', 'projections rebuild sales'],
  ['projections run-once', 'consumers run-once'],
  ['projections run-once --name sales', 'consumers run-once sales'],
  ['projections run-until-idle --name=sales --json', 'consumers run-until-idle --json sales'],
  ['projections dlq-list sales --limit 100', 'dead-letters list sales --limit 100'],
  ['projections dlq-requeue sales --id 123', 'dead-letters retry sales 123'],
  ['projections dlq-requeue --id 123 sales', 'dead-letters retry sales 123'],
  ['projections dlq-delete sales --id 123', 'dead-letters delete sales 123'],
  ['projections metrics sales', 'consumers status sales'],
  [
    'projections run-loop --use-notify true --health-bind 127.0.0.1:8080',
    'run --only projections --health-bind 127.0.0.1:8080',
  ],
  ['projections run-loop --use-notify', 'run --only projections'],
  [
    'projections run-loop --cluster-mode single --heartbeat-secs 5 --lease-ttl-secs 30',
    'run --only projections --lease-ms 30000',
  ],
  ['projections cluster-status --cluster shop', 'runners list'],
  ['projections promote --cluster shop --node west-1', 'runners promote west-1'],
  ['projections demote --cluster shop --node west-1', 'runners demote west-1'],
  ['streams resolve orders:42', 'streams resolve orders:42'],
  ['archive mark order-1 --by ada', 'streams archive order-1 --actor ada'],
  ['archive reactivate order-1', 'streams restore order-1'],
  ['snapshots compact-once --threshold 200 --batch 200', 'snapshots compact-once --threshold 200 --batch 200'],
  [
    'upcasters path --from-type OrderPlaced --from-version 1 --to-type OrderPlaced --to-version 3',
    'upcasters path OrderPlaced 1',
  ],
  [
    'subscriptions create s1 --event-type Ping --start-from 0',
    'subscriptions create s1 --event-type Ping --start-from 0',
  ],
  ['subscriptions tail orders --group workers-a --limit 10', 'subscriptions tail orders --group workers-a --limit 10'],
  ['subscriptions group-status orders --group workers-a', 'subscriptions status orders --group workers-a'],
  [
    'subscriptions set-group-max-in-flight orders --group workers-a --value 500',
    'subscriptions set-max-in-flight orders --group workers-a 500',
  ],
  [
    'subscriptions set-group-max-in-flight orders --group workers-a',
    'subscriptions set-max-in-flight orders --group workers-a',
  ],
  ['docs get customers c-1', 'documents get customers c-1'],
  ['docs index-advisor customers --gin --field email', 'documents index-advisor customers --gin --field email'],
  ['docs verify', 'schema check'],
  ['health schema --all-tenants', 'health schema --all-tenants'],
  ['archive status', 'streams list --state archived'],
  ['subscriptions tail orders --max-in-flight 5', 'subscriptions tail orders'],
  [
    'subscriptions set-group-max-in-flight orders --group a --value none',
    'subscriptions set-max-in-flight orders --group a',
  ],
  ['migrate list', 'schema check'],
  ['project --continuous', 'run --only projections'],
  ['migrate pending', 'schema plan'],
  ['migrate run', 'schema sync'],
])('"%s" is read as "%s"', async (older, now) => {
  // The options that belong to the command come first.
  const words = (line: string): string[] => line.split(' ').sort()

  expect(words(await readAs(older))).toEqual(words(now))
})

test('a process of a hot/cold cluster is a runner on standby, with a name of its own', async () => {
  const line = await readAs('projections run-loop --cluster-mode hotcold --cluster-name shop --min-cold-standbys 1')

  expect(line).toMatch(/^run --only projections --standby --name \S+-\d+$/)
})

test.each([
  ['docs get c-1', 'rillflow documents get COLLECTION c-1'],
  ['docs soft-delete c-1 --json', 'rillflow documents soft-delete COLLECTION c-1'],
  ['docs index-advisor --gin --field email', 'rillflow documents index-advisor COLLECTION --gin --field FIELD'],
  ['projections promote shop west-1', 'rillflow runners promote west-1'],
  ['projections demote --cluster shop', 'rillflow runners demote NAME'],
  ['subscriptions group-status orders workers-a', 'rillflow subscriptions status orders --group workers-a'],
  [
    'subscriptions set-group-max-in-flight orders workers-a 500',
    'rillflow subscriptions set-max-in-flight orders 500 --group workers-a',
  ],
  [
    'subscriptions set-group-max-in-flight orders workers-a none',
    'rillflow subscriptions set-max-in-flight orders --group workers-a',
  ],
  ['projections list --all-tenants', 'rillflow projections list --tenant NAME'],
  ['docs explain-sql SELECT --analyze', 'rillflow documents explain COLLECTION --where FILTER --analyze'],
  ['docs duplicated-fields list', 'rillflow documents collections'],
  ['docs duplicated-fields suggest email', 'rillflow documents index-advisor COLLECTION --field email'],
  ['docs duplicated-fields backfill email --batch-size 1000', 'rillflow schema sync'],
  ['archive status order-1', 'rillflow streams show order-1'],
  ['archive move --before 2026-01-01 --dry-run', 'rillflow upkeep'],
  ['archive redirect --enable true', 'rillflow streams archive STREAM'],
  ['archive partition --retention hot --month 2026-01', 'rillflow streams archive STREAM'],
  ['migrate generate add-column', 'rillflow schema plan'],
  ['migrate rollback --force', 'rillflow schema check'],
  ['migrate run --dry-run', 'rillflow schema plan'],
  ['schema-plan --tenant-schema acme', '--tenant NAME, whose schema follows from its name'],
  ['--slow-query-ms 500 projections list', 'slowStatementMs in rillflow.config.ts'],
  ['projections list --slow-query-explain', 'explainSlow in rillflow.config.ts'],
  ['status --db-path ./data', '--folder PATH'],
  ['status --verbose', '--debug'],
])('"%s" is answered with the line to type: "%s"', async (older, line) => {
  await expect(readAs(older)).rejects.toMatchObject({ code: 'wrong_usage', hint: line })
})
