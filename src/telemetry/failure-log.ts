/**
 * The logger of a store that was given none. While a runner runs it writes failures to stderr, so that a program whose
 * projection fails is not silent: one line each, and at most one per definition and second. Nothing else is written, and
 * nothing while no runner runs.
 */
import { elapsedMs } from '../core/host.ts'
import { escapeControls } from '../core/printable.ts'
import type { Logger } from './telemetry.ts'

export interface FailureLog extends Logger {
  /** Failures are written until the function returned is called. */
  begin(): () => void
}

const everyMs = 1_000
/** Definitions whose last line is remembered; beyond that all are forgotten. */
const maxRemembered = 1_000

export function openFailureLog(
  write: (line: string) => void = line => void process.stderr.write(line),
  time: () => number = elapsedMs,
): FailureLog {
  const writtenAt = new Map<string, number>()
  let runners = 0

  const report = (fields: object, message: string): void => {
    if (runners === 0 || !('error' in fields)) return
    const definition = definitionIn(fields)
    const at = time()
    if (at - (writtenAt.get(definition) ?? Number.NEGATIVE_INFINITY) < everyMs) return
    if (writtenAt.size >= maxRemembered) writtenAt.clear()
    writtenAt.set(definition, at)
    const subject = definition === '' ? '' : `${definition}: `
    write(`${escapeControls(`rillflow: ${subject}${message.replace(/\.$/, '')}: ${oneLine(fields.error)}`)}\n`)
  }

  return {
    debug() {},
    info() {},
    warn: report,
    error: report,
    begin() {
      runners++
      let isOver = false
      return () => {
        if (!isOver) runners--
        isOver = true
      }
    },
  }
}

/** The name of the definition that the failure is about. */
function definitionIn(fields: object): string {
  const known = fields as Readonly<Record<string, unknown>>
  for (const field of ['consumer', 'subscription', 'handler', 'schedule', 'projection', 'aggregate', 'runner', 'owner'])
    if (typeof known[field] === 'string') return known[field]
  return ''
}

function oneLine(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error)
  return text.replaceAll(/\s+/g, ' ').slice(0, 500)
}
