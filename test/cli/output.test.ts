import { describe, expect, test, vi } from 'vitest'
import { isGroup } from '../../src/cli/arguments.ts'
import type { Group } from '../../src/cli/command.ts'
import { root } from '../../src/cli/commands/commands.ts'
import { summaryLine } from '../../src/cli/commands/dev/dev.ts'
import { eventLine } from '../../src/cli/commands/events.ts'
import type { Status } from '../../src/cli/commands/status.ts'
import { activityLine } from '../../src/cli/commands/workflow-text.ts'
import { groupHelp } from '../../src/cli/help.ts'
import { ago, count, duration } from '../../src/cli/output/amount.ts'
import { openOutput, type Style, styleFor } from '../../src/cli/output/output.ts'
import { type Column, fields, table } from '../../src/cli/output/table.ts'
import { reportError } from '../../src/cli/report-error.ts'
import { PermissionDenied } from '../../src/database/errors.ts'

const streams = [
  { stream: 'order-1', version: 3 },
  { stream: `order-${'x'.repeat(60)}`, version: 12_000 },
]
const columns: Column<(typeof streams)[number]>[] = [
  { title: 'STREAM', of: each => each.stream, cut: true },
  { title: 'VERSION', of: each => each.version, right: true },
]

function terminal(columns: number): { isTTY: true; columns: number; text: string; write(text: string): void } {
  return {
    ...{ isTTY: true, columns, text: '' },
    write(text) {
      this.text += text
    },
  }
}

const on = (stream: object, env: NodeJS.ProcessEnv = {}): Style =>
  styleFor({ stream: stream as ReturnType<typeof terminal>, env: { LANG: 'C.UTF-8', ...env }, color: undefined })

test('a table fits the terminal, and is never cut in a pipe', () => {
  const narrow = table(on(terminal(40), { NO_COLOR: '1' }), streams, columns, 'None.')
  const piped = table(on({ write() {} }), streams, columns, 'None.')

  expect(narrow.split('\n')).toEqual([
    'STREAM                           VERSION',
    'order-1                                3',
    `order-${'x'.repeat(24)}…    12000`,
  ])
  expect(piped).toContain('x'.repeat(60))
  expect(table(on({ write() {} }), [], columns, 'None.')).toBe('None.')
})

test('a line of activity and the summary of dev fit the terminal, and are whole in a pipe', () => {
  const id = '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'
  const message = 'the gateway said that the card was refused, and that it is to be tried again tomorrow'
  const activity = {
    ...{ position: 1, at: new Date(), kind: 'failed', outcome: 'maxRetries', correlationId: id, version: 1 },
    ...{ handler: 'charge-card-of-customer', eventType: 'OrderPlaced', executionId: id, eventPosition: 1, attempt: 4 },
    ...{ eventId: id, queuedMs: 1, runningMs: 1_234, worker: undefined, result: undefined, error: { message } },
  } as unknown as Parameters<typeof activityLine>[1]
  const consumers = ['orders', 'sales', 'mailer', 'search-index', 'loyalty'].map(name => ({ name, checkpoint: 1204 }))
  const status = {
    ...{ log: { head: 1, settled: 1 }, consumers, deadLetters: { open: 1 }, workflows: { settled: 9, active: 1 } },
  } as unknown as Status
  const [narrow, piped] = [on(terminal(80), { NO_COLOR: '1' }), on({ write() {} })]

  const lines = [...`${' '.repeat(8)}${activityLine(narrow, activity, 8)}`.split('\n'), summaryLine(narrow, status)]

  for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(80)
  expect(lines.slice(1, -1).join(' ').replaceAll(/ +/g, ' ')).toBe(` ${message}`)
  expect(lines.at(-1)).toMatch(/1 position · 9 workflows settled, 1 active · 1 dead letter$/)
  expect(summaryLine(on(terminal(90), { NO_COLOR: '1' }), status)).toContain(
    '1 position · all from #1204 · 9 workflows',
  )
  expect(activityLine(piped, activity)).toContain(`${id}  failed      charge-card-of-customer (OrderPlaced)  attempt 4`)
  expect(summaryLine(piped, status)).toContain('loyalty at #1204')
})

test('colours and symbols depend on the terminal and the environment', () => {
  const coloured = fields(on(terminal(80)), { stream: 'order-1', reason: undefined, data: '{\n}' })

  expect(coloured).toBe('\u001b[2mstream\u001b[22m  order-1\n\u001b[2mdata  \u001b[22m  {\n        }')
  expect(fields(on(terminal(80), { TERM: 'dumb' }), { stream: 'order-1' })).toBe('stream  order-1')
  expect(on(terminal(80), { LANG: 'C' }).symbols.ellipsis).toBe('~')
})

test('progress is a bar with rate and time left on a terminal, and a line every few seconds elsewhere', () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    const screen = terminal(80)
    const pipe = { ...terminal(80), isTTY: false }
    const [narrow, narrowest] = [terminal(60), terminal(40)]
    const bars = [screen, pipe, narrow, narrowest].map(stderr =>
      openOutput({ stdout: pipe, stderr, env: { NO_COLOR: '1' }, isJson: false, color: undefined }).progress(
        'Rebuilding',
      ),
    )

    for (const bar of bars) bar.update(1, 100, 'event')
    const early = screen.text + pipe.text
    vi.advanceTimersByTime(6_000)
    for (const bar of bars) bar.update(30, 100, 'event')
    for (const bar of bars) bar.end()

    expect(early).toBe('')
    expect(screen.text).toContain(`${'█'.repeat(7)}${'░'.repeat(17)} Rebuilding: 30 of 100 events, 5/s, 14s left`)
    expect(screen.text.endsWith('\r\u001b[2K')).toBe(true)
    expect(pipe.text).toBe('Rebuilding: 30 of 100 events, 5/s, 14s left\n')
    expect(narrow.text).toContain('\u001b[2KRebuilding: 30 of 100 events, 5/s, 14s left\r')
    expect(narrowest.text).toContain('\u001b[2KRebuilding: 30 of 100 events, 5/s, 14s…\r')
  } finally {
    vi.useRealTimers()
  }
})

test('an error about privileges names the role to use', () => {
  const stderr = terminal(80)
  const refused = new PermissionDenied({ reason: 'permission denied', statement: 'schema shop' })

  const code = reportError(refused, { stderr, env: { NO_COLOR: '1' }, color: undefined, isJson: false, isDebug: false })

  expect(code).toBe(1)
  expect(stderr.text).toMatch(/^error: .*permission denied.*\n {2}try: the role that owns the schema/)
})

test('times and counts are printed for people', () => {
  const now = new Date('2026-01-31T12:00:00Z')
  const before = (ms: number): string | undefined => ago(new Date(now.getTime() - ms), now)

  expect([before(0), before(5_000), before(125_000), before(-7_200_000), before(90 * 86_400_000)]).toEqual([
    ...['now', '5.0s ago', '2m05s ago', 'in 2h00m', '2025-11-02'],
  ])
  expect([duration(12), duration(90_000_000)]).toEqual(['12ms', '1d01h'])
  expect([count(1, 'event'), count(12_345, 'event')]).toEqual(['1 event', '12,345 events'])
})

describe('at 80 columns', () => {
  const style = { ...on(terminal(80), { NO_COLOR: '1' }), now: new Date() }
  const widest = (text: string): number => Math.max(...text.split('\n').map(line => [...line].length))
  const id = '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'

  test('a long error has lines of its own, whole, and the columns that matter least give way', () => {
    const error = 'the gateway answered 402 Payment Required because the card ending in 4242 was declined by its bank'
    const rows = [{ owner: 'charge', event: id, type: 'OrderPlaced', attempts: 4, error }]
    const text = table(
      style,
      rows,
      [
        { title: 'OWNER', of: row => row.owner },
        { title: 'EVENT', of: row => row.event },
        { title: 'TYPE', of: row => row.type, cut: true },
        { title: 'ATTEMPTS', of: row => row.attempts, right: true, leftOut: 1 },
        { title: 'WHEN', of: () => 'two hours and a half ago', leftOut: 2 },
        { title: 'ERROR', of: row => row.error, below: true },
      ],
      '',
    )

    expect(widest(text)).toBeLessThanOrEqual(80)
    expect(text.replaceAll(/\s+/g, ' ')).toContain(error)
    expect(text).toContain(id)
    expect(text).toContain('ATTEMPTS')
    expect(text).not.toContain('WHEN')
  })

  test('a line of the log shows type and data, and shortens a long stream in its middle', () => {
    const event = { position: 42, createdAt: new Date(), stream: `order-${id}`, version: 3, type: 'OrderPlaced' }
    const line = eventLine(style, { ...event, data: { cents: 4200, customer: 'ada' } } as never)

    expect([...line].length).toBeLessThanOrEqual(80)
    expect(line).toContain('OrderPlaced')
    expect(line).toMatch(/\{"cents":4200/)
    expect(line).toMatch(/order-\S*…\S*a001@3/)
  })

  test('help is wrapped under its own column', async () => {
    const groups = Object.entries(await root.commands()).filter(([, entry]) => isGroup(entry))
    const helps = groups.map(([name, entry]) => groupHelp(style, root, entry as Group, [name]))

    for (const help of [await groupHelp(style, root, root, []), ...(await Promise.all(helps))])
      expect(widest(help)).toBeLessThanOrEqual(80)
  })
})
