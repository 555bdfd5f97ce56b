/** The runs and the rows of the performance page. */

/** A comparison of a bench, by its case and its peer. */
export interface Row {
  readonly bench: string
  readonly case: string
  readonly peer: string
  /** The end of the peer's set-up, where it has several. */
  readonly note?: string
  readonly label: string
  /** The ratio that is to be reached. */
  readonly bar?: number | undefined
  /** Why the peer is faster, if it is. */
  readonly reason?: string | undefined
}

/** In this order; about twelve minutes on a quiet machine with two cores. */
export const runs: readonly { readonly name: string; readonly args: readonly string[] }[] = [
  { name: 'append', args: ['--quick'] },
  { name: 'documents', args: ['--quick'] },
  { name: 'workflow', args: ['--quick'] },
  { name: 'tenants', args: ['--quick', '--only', 'append'] },
  { name: 'jit', args: ['--quick'] },
  { name: 'bulk', args: ['--quick'] },
  { name: 'catchup', args: ['--only', 'statements'] },
  { name: 'catchup', args: ['--quick'] },
  { name: 'start', args: ['--quick'] },
  { name: 'growth', args: [] },
]

const overhead = 'the store checks, groups and tells readers'
const connections = '10 connections by default, against 32'
const inPlace = 'it runs a workflow where it was started, without a log and a dispatcher'
const looks = 'a hundred looks into a larger index'
const graphile = 'graphile-worker'
const history = 'each execution has a history'
const flushes = 'two flushes to disk in a row, and a stored history'

export const groups: readonly { readonly name: string; readonly title: string; readonly rows: readonly Row[] }[] = [
  {
    name: 'append',
    title: 'Append',
    rows: [
      row('append', '1', 'per-append call', 'one caller, to the bare call through pg', 0.9, overhead),
      row('append', '1 p99', 'per-append call', 'the same, slowest 1 %', 0.7, overhead),
      row('append', '8', 'emmett', '8 callers, to Emmett', 2.5),
      row('append', '64', 'emmett', '64 callers, to Emmett', 6),
      row('append', '256', 'emmett', '256 callers, to Emmett', 8),
      row('append', '64x10', 'emmett', '64 callers × 10 events, to Emmett', 3),
      row('append', '64x10', 'copy', '64 callers × 10 events, to COPY', 0.4, 'COPY checks nothing'),
      row('append', '256', 'copy', '256 callers, to COPY', 0.4, 'COPY checks nothing and answers once'),
      row('bulk', 'rows made alike', 'copy', 'import, to COPY', 0.7, 'COPY makes no streams'),
      row('jit', '64', 'ours', '64 callers on a server with JIT, to without', 0.95),
      row('jit', 'save, 64 callers', 'ours', 'saves of 64 callers on a server with JIT, to without', 0.95),
      row(
        'tenants',
        '100 tenants',
        'ours',
        '64 callers over 100 tenants, to none',
        0.15,
        'a transaction for each tenant',
      ),
    ],
  },
  {
    name: 'documents',
    title: 'Documents and sessions',
    rows: [
      row('documents', 'get', 'hand-written', 'get, to hand-written SQL', 0.9),
      row('documents', 'get, 64 callers', 'hand-written', 'get, 64 callers', 0.9),
      row('documents', 'put', 'hand-written', 'put', 0.9),
      row('documents', 'put, 64 callers', 'hand-written', 'put, 64 callers', 0.9, connections),
      row('documents', 'put, 64 callers, pool of 32', 'hand-written', 'the same, each with 32 connections', 0.9),
      row('documents', 'patch', 'hand-written', 'patch', 0.9),
      row('documents', 'patch, 64 callers', 'hand-written', 'patch, 64 callers', 0.9, connections),
      row('documents', 'patch, 64 callers, pool of 32', 'hand-written', 'the same, each with 32 connections', 0.9),
      row('documents', 'bulk 10k', 'hand-written', '10,000 documents in one call', 0.9),
      row(
        'documents',
        'query of 1',
        'hand-written',
        'query of one document',
        0.9,
        'the query is built and rendered each time',
      ),
      row('documents', 'query of 1, compiled', 'hand-written', 'query of one document, compiled', 0.9),
      row(
        'documents',
        'save',
        'hand-written',
        'save of a document and an event, to one pipelined transaction',
        0.9,
        overhead,
      ),
      row('documents', 'save, 64 callers', 'round trips', 'the same, 64 callers, to four round trips', 3),
    ],
  },
  {
    name: 'workflows',
    title: 'Workflows',
    rows: [1, 8, 64]
      .flatMap((callers, at) => [
        row(
          'workflow',
          `${callers}`,
          'pg-boss',
          `publish → settled, ${name(callers)}, to pg-boss`,
          [1.5, 1.8, 4][at],
          flushes,
        ),
        row('workflow', `${callers}`, 'graphile-worker', `the same, to graphile-worker`, [0.8, 1.2, 3][at], flushes),
        row(
          'workflow',
          `${callers} handled`,
          'graphile-worker',
          `answered as theirs are, ${name(callers)}, to graphile-worker`,
          [1.1, 2.2][at],
          flushes,
        ),
        row(
          'workflow',
          `${callers}`,
          'dbos',
          `publish → settled, ${name(callers)}, to DBOS Transact`,
          undefined,
          inPlace,
        ),
        row(
          'workflow',
          `${callers} with a step`,
          'dbos',
          `the same with a step, ${name(callers)}, to DBOS Transact`,
          undefined,
          inPlace,
        ),
      ])
      .concat([
        row('workflow', 'backlog', 'pg-boss', 'a backlog, to pg-boss', 1.2, history),
        {
          ...row('workflow', 'backlog', graphile, `a backlog, to ${graphile}, queue of 50`, 0.9, history),
          note: 'of 50',
        },
        { ...row('workflow', 'backlog', graphile, 'the same, queue of 500', 0.6, history), note: 'of 500' },
      ]),
  },
  {
    name: 'growth',
    title: 'Growth: 5 million events, to 100,000',
    rows: [
      ...[
        'append to an old stream',
        'append to a new stream',
        'append, 64 callers',
        'read a stream',
        'first 100 of the log',
      ],
      ...['page of 500 at the end', 'claim 50, and give them back', 'streams.list', 'events.list', 'workflows.list'],
      ...['deadLetters.list', 'deadLetters.stats', 'consumers.list', 'consumers.status'],
    ].map(each => row('growth', each, 'ours', each, 0.77, each === 'streams.list' ? looks : undefined)),
  },
  {
    name: 'other',
    title: 'Projections and start',
    rows: [
      row(
        'catchup',
        'runner',
        'per-event statement',
        'fold 100,000 events into documents, to a statement per event',
        10,
      ),
      row('catchup', 'rebuild', 'per-event statement', 'rebuild, to a statement per event', 10),
      row('catchup', 'runner', 'emmett', 'fold 20,000 events, to Emmett’s rebuild', 10),
      row('start', 'new embedded store', 'ours', 'a new embedded store, CPU, to one without the image', 2.86),
    ],
  },
]

function row(bench: string, name: string, peer: string, label: string, bar?: number, reason?: string): Row {
  return { bench, case: name, peer, label, bar, reason }
}

function name(callers: number): string {
  return callers === 1 ? 'one caller' : `${callers} callers`
}
