/** The reference of the HTTP API, from the table of routes and the types of their answers. */
import { readFileSync } from 'node:fs'
import { statusOf } from '../../src/server/api/answer.ts'
import type { Field, Fields, Route } from '../../src/server/api/route.ts'

export function httpReference(routes: readonly Route[]): string {
  const answers = answersIn(readFileSync('src/server/api/contract.ts', 'utf8'))
  const nounOf = ({ path }: Route): string => path.split('/')[1] || 'store'
  const nouns = [...new Set(routes.map(nounOf))].map(
    noun => [noun, routes.filter(each => nounOf(each) === noun)] as const,
  )
  const parts = nouns.map(([noun, own]) => [`## ${noun}`, ...own.map(each => routeText(each, answers))].join('\n\n'))
  return `${[introduction, ...parts, errors()].join('\n\n')}\n`
}

const introduction = `# The HTTP API

\`store.server({ port, console: true })\` serves it below \`/api/v1\`, and \`store.http({ base, authorize })\` below
\`{base}/api/v1\`. Of a store with tenants, every path also stands below \`/api/v1/tenants/{tenant}\`. [The
console](../operations/console.md) is made of these routes alone.

- Bodies are JSON. Positions are numbers, times ISO 8601 text, absent fields are left out.
- A list is \`{ items, next }\`. \`next\` goes back as \`after\`, and is null on the last page. There are 500 items on a
  page at most, and no totals.
- Everything but a read needs \`Content-Type: application/json\`, and either the token in \`Authorization: Bearer …\` or an
  \`Origin\` of the same host. \`Idempotency-Key\` makes an append or a publish repeatable.
- An error is \`{ error: { code, message, retryable, data, see } }\`.
- 202 means that an operation has begun: \`GET /operations\` and the live feed show its progress.

This page is generated from the table of routes in \`src/server/api/routes/\`.`

function routeText({ key, summary, role, query, body, status, cli }: Route, answers: Map<string, string>): string {
  const answer = answers.get(key) ?? 'unknown'
  const lines = [
    `### ${key}`,
    `${summary}. Role: ${role}. Answer: ${status === 200 ? '' : `${status}, `}\`${answer}\`.`,
    ...fieldList('Parameters', query),
    ...(body === undefined ? [] : fieldList('Body', body)),
    ...(cli === undefined ? [] : [`On the command line: \`${exampleOf(cli)}\``]),
  ]
  return lines.join('\n\n')
}

/** A line with values in the place of its parameters, where a word would not be understood. */
export function exampleOf(cli: string): string {
  return cli.replaceAll(/\{(position|version|partitions|maxInFlight)\}/g, '1').replaceAll('{data}', "'{}'")
}

function fieldList(title: string, fields: Fields): string[] {
  const lines = Object.entries(fields).map(([name, field]) => `- \`${name}\` (${kindText(field)}): ${field.summary}`)
  return lines.length === 0 ? [] : [`${title}:`, lines.join('\n')]
}

function kindText({ kind, choices, min, max, required }: Field): string {
  const range = min === undefined ? '' : max === undefined ? ` from ${min}` : ` ${min} to ${max}`
  const what = choices === undefined ? `${kind}${range}` : `${kind}: ${choices.join(', ')}`
  return required ? `${what}; required` : what
}

/** The types of the answers, as `contract.ts` writes them. */
function answersIn(source: string): Map<string, string> {
  const found = [...source.matchAll(/^ {2}'([A-Z]+ [^']+)': \{ answer: (.+) \}$/gm)]
  return new Map(found.map(([, key, answer]) => [key!, answer!]))
}

function errors(): string {
  const codes = [
    ...['stream_not_found', 'version_conflict', 'document_exists', 'invalid_option', 'tenant_required', 'overloaded'],
    ...['database_unreachable', 'timed_out'],
  ]
  const width = Math.max(...codes.map(code => code.length)) + 2
  const rows = codes.map(code => `| ${`\`${code}\``.padEnd(width)} | ${String(statusOf(code)).padEnd(6)} |`)
  return [
    '## Status of errors',
    'The status follows from the [code](errors.md): not found 404, a conflict 409, invalid 400, overloaded 429 with `Retry-After`, the database away 503. Without an identity it is 401, and with a role that is too low 403. Everything else is 500, without its text.',
    [`| ${'code'.padEnd(width)} | status |`, `| ${'-'.repeat(width)} | ------ |`, ...rows].join('\n'),
  ].join('\n\n')
}
