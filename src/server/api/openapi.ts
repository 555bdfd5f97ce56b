/** The description of the API for machines, made from the table of routes: OpenAPI 3.1. */
import { packageVersion } from '../../core/package-version.ts'
import type { Field, Fields, Route } from './route.ts'

export function openApiDocument(routes: readonly Route[], base: string): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const each of routes) {
    const path = each.path.replace(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [each.method.toLowerCase()]: operationOf(each) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Rillflow',
      version: packageVersion(),
      description:
        'Positions are numbers, times ISO 8601 text. A list is { items, next }; next goes back as after, and is null on the last page. Of a store with tenants, every path also stands below /tenants/{tenant}.',
    },
    servers: [{ url: `${base}/api/v1` }],
    security: [{ token: [] }, { session: [] }],
    paths,
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: 'rillflow_session' },
      },
      schemas: { Refused: refusedSchema },
    },
  }
}

const refusedSchema = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['code', 'message', 'retryable', 'data', 'see'],
      properties: {
        code: { type: 'string' },
        message: { type: 'string' },
        retryable: { type: 'boolean' },
        data: { type: 'object' },
        see: { type: 'string' },
      },
    },
  },
}

function operationOf(each: Route): object {
  const { key, summary, role, query, body, status, path } = each
  const inPath = [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    ...{ name, in: 'path', required: true, schema: { type: 'string' } },
  }))
  const inQuery = Object.entries(query).map(([name, field]) => ({
    ...{ name, in: 'query', required: field.required === true, description: field.summary, schema: schemaOf(field) },
    ...(field.kind === 'list' ? { style: 'form', explode: false } : {}),
  }))
  const type = key === 'GET /live' ? 'text/event-stream' : 'application/json'
  return {
    operationId: key,
    summary,
    'x-role': role,
    ...(each.cli === undefined ? {} : { 'x-cli': each.cli }),
    ...(role === 'open' ? { security: [] } : {}),
    parameters: [...inPath, ...inQuery],
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: bodySchema(body) } } } }),
    responses: {
      [status]: { description: status === 202 ? 'It has begun.' : 'Done.', content: { [type]: {} } },
      default: {
        description: 'Refused.',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Refused' } } },
      },
    },
  }
}

function bodySchema(fields: Fields): object {
  const required = Object.entries(fields).flatMap(([name, field]) => (field.required === true ? [name] : []))
  const properties = Object.entries(fields).map(([name, field]) => [
    name,
    { ...schemaOf(field), description: field.summary },
  ])
  return { type: 'object', required, additionalProperties: false, properties: Object.fromEntries(properties) }
}

function schemaOf({ kind, choices, min, max }: Field): object {
  const choice = choices === undefined ? {} : { enum: choices }
  if (kind === 'whole')
    return {
      type: 'integer',
      ...(min === undefined ? {} : { minimum: min }),
      ...(max === undefined ? {} : { maximum: max }),
    }
  if (kind === 'flag') return { type: 'boolean' }
  if (kind === 'time') return { type: 'string', format: 'date-time' }
  if (kind === 'list') return { type: 'array', items: { type: 'string', ...choice } }
  return kind === 'json' ? {} : { type: 'string', ...choice }
}
