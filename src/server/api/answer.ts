/**
 * From results and errors to answers. The status of an error follows from its code, in one table; an error that is not
 * ours is logged and answered without its text, because it may have data in it.
 */
import { errorPage, isRillflowError, type RillflowError } from '../../core/errors.ts'
import type { Page } from '../../core/page.ts'
import type { Telemetry } from '../../telemetry/telemetry.ts'
import type { Refused } from './contract.ts'

/** A refusal of the server itself, which no call of the store gives. */
export class RequestRefused extends Error {
  readonly status: number
  readonly code: string
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, code: string, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message)
    this.status = status
    this.code = code
    this.headers = headers
  }
}

/** The first that matches. */
const statuses: readonly (readonly [RegExp, number])[] = [
  [/_not_found$|^event_gone$/, 404],
  [/_(conflict|exists|mismatch|pending|running|moving|read_only|deleted|archived|tombstoned)$/, 409],
  [/^(lease_lost|lane_not_parked|execution_not_parked|already_settled|unique_violation|duplicate_.*)$/, 409],
  [/^(rebuild_impossible|force_required|tenancy_required|collection_not_synced)$/, 409],
  [/^(invalid_.*|tenant_required|checkpoint_beyond_head)$/, 400],
  [/^overloaded$/, 429],
  [/^(database_.*|connection_lost|store_closed|timed_out|server_in_recovery|authentication_failed|aborted)$/, 503],
  [/^(server_full|directory_unreachable|transaction_timeout|serialization_failed|log_rewound|schema_.*)$/, 503],
]

export function statusOf(code: string): number {
  return statuses.find(([pattern]) => pattern.test(code))?.[1] ?? 500
}

export function answerJson(value: unknown, status: number): Response {
  return new Response(`${JSON.stringify(value, withNull)}\n`, { status, headers: jsonHeaders })
}

const jsonHeaders = {
  'content-type': 'application/json',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
}

/** The last page of a list says so: `next` is null there. */
function withNull(_: string, value: unknown): unknown {
  const page = value as Page<unknown> | undefined
  const isPage = typeof value === 'object' && value !== null && Array.isArray(page?.items) && 'next' in value
  return isPage && page?.next === undefined ? { ...page, next: null } : value
}

export function answerError(error: unknown, telemetry: Telemetry | undefined): Response {
  const refused = describeError(error)
  if (refused.status >= 500 && refused.status !== 503)
    telemetry?.log.error({ error }, 'A request to the HTTP server could not be answered.')
  const response = answerJson(refused.body, refused.status)
  for (const [name, value] of Object.entries(refused.headers)) response.headers.set(name, value)
  return response
}

interface DescribedError {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Refused
}

function describeError(error: unknown): DescribedError {
  if (error instanceof RequestRefused) {
    const { status, code, message, headers } = error
    return { status, headers, body: refusal(code, message, status === 429 || status === 503, {}) }
  }
  const status = isRillflowError(error) ? statusOf(error.code) : 500
  if (!isRillflowError(error) || status === 500)
    return {
      status: 500,
      headers: {},
      body: refusal('internal', 'The request could not be answered. The reason is in the log.', false, {}),
    }
  return { status, ...refusalOf(error, status) }
}

/** The body and the headers of an error of ours. */
export function refusalOf(error: RillflowError, status: number): Omit<DescribedError, 'status'> {
  const { name: _, code, retryable, message, ...data } = error.toJSON()
  const headers: Record<string, string> = status === 429 || status === 503 ? { 'retry-after': '1' } : {}
  return { headers, body: refusal(String(code), String(message), retryable === true, data) }
}

function refusal(code: string, message: string, retryable: boolean, data: Record<string, unknown>): Refused {
  return { error: { code, message, retryable, data, see: errorPage(code) } }
}
