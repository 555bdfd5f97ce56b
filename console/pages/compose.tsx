/** A new event: published, so that it begins a workflow, or appended to a stream. The data is made from its schema. */
import { useEffect, useId, useState } from 'preact/hooks'
import { refusedFor, request } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { refusalOf } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Command } from '../parts/copy.tsx'
import { Shape } from '../parts/icon.tsx'
import { JsonField, parsed } from '../parts/json-field.tsx'
import { Button, Choose } from '../parts/parts.tsx'
import { say } from '../shell/said.tsx'
import type { Address } from '../shell/where.ts'

type EventType = AnswerOf<'GET /events/types'>['items'][number]

const expectations = { any: 'any version', empty: 'the stream is new', exists: 'the stream exists' } as const

export function Compose({ address, types }: { address: Address; types: readonly EventType[] }) {
  const isAppend = address.query.do === 'append'
  const [type, setType] = useState(address.query.type ?? '')
  const [stream, setStream] = useState(address.query.stream ?? '')
  const [expected, setExpected] = useState<keyof typeof expectations>('any')
  const [text, setText] = useState('{}')
  const [isOwn, setOwn] = useState(false)
  const [refusal, setRefusal] = useState<string | undefined>(undefined)
  const [key] = useState(() => crypto.randomUUID())
  const id = useId()
  const known = types.find(each => each.type === type)
  useEffect(() => {
    if (isOwn || known === undefined) return
    if (known.jsonSchema !== undefined) return setText(JSON.stringify(exampleOf(known.jsonSchema), null, 2))
    // Without a schema the newest event of the type is the example.
    if (known.lastPosition === undefined) return
    request('GET /events/at/:position', { parameters: { position: String(known.lastPosition) } })
      .then(({ data: newest }) => setText(JSON.stringify(newest.data, null, 2)))
      .catch(() => {})
  }, [known])
  const data = parsed(text)
  const missing =
    type === ''
      ? 'it needs a type'
      : isAppend && stream === ''
        ? 'it needs a stream'
        : data === undefined && 'the data is not JSON'
  const close = (change: Record<string, string | undefined> = {}): void => address.replace({ do: undefined, ...change })
  const send = async (): Promise<void> => {
    if (data === undefined) return
    try {
      // Sent twice, it is one event all the same.
      const headers = { 'idempotency-key': `console-${key}` }
      if (isAppend) {
        const body = { type, data: data.value, expected }
        const { data: sent } = await request('POST /streams/:stream/append', { parameters: { stream }, body, headers })
        say(`${type} is appended to ${stream}.`)
        return close({ open: sent.eventIds[0] })
      }
      const body = { type, data: data.value, ...(stream === '' ? {} : { stream }) }
      const { data: sent } = await request('POST /workflows/publish', { body, headers })
      const href = pageUrl(`/workflows/${encodeURIComponent(sent.correlationId)}`)
      say(`${type} is published.`, { undo: { label: 'Its workflow', run: () => address.go(href) } })
      close()
    } catch (error) {
      setRefusal(refusalOf(error).message)
    }
  }
  const line = isAppend
    ? `rillflow events append ${stream || 'STREAM'} ${type || 'TYPE'} '${oneLine(data)}'`
    : `rillflow workflows publish ${type || 'TYPE'} '${oneLine(data)}'`
  return (
    <aside class="inspector" aria-label="New event">
      <header>
        <div class="line">
          <h2 class="title">New event</h2>
          <span class="push actions">
            <Button kind="bare" small icon="close" label="Close" onClick={() => close()} />
          </span>
        </div>
      </header>
      <form
        class="compose"
        onSubmit={event => {
          event.preventDefault()
          void send()
        }}
      >
        <section class="stack-2">
          <Choose
            label="What to do with it"
            value={isAppend ? 'append' : 'publish'}
            onChoose={value => address.replace({ do: value })}
            choices={[
              { value: 'publish', label: 'Publish' },
              { value: 'append', label: 'Append' },
            ]}
          />
          <p class="dim">
            {isAppend
              ? 'It goes to the end of a stream. Handlers of its type run for it, too.'
              : 'It begins a workflow: the handlers of its type run, and whatever follows belongs to it.'}
          </p>
          <div class="field">
            <label for={`${id}-type`}>Type</label>
            <input
              id={`${id}-type`}
              class="input mono"
              list={`${id}-types`}
              autocomplete="off"
              spellcheck={false}
              value={type}
              onInput={event => setType(event.currentTarget.value.trim())}
            />
            <datalist id={`${id}-types`}>
              {types.map(each => (
                <option key={each.type} value={each.type} />
              ))}
            </datalist>
            <span class="hint">
              {known?.hasSchema
                ? `The schema of ${type} is checked before anything is stored.`
                : type !== '' && known === undefined
                  ? 'No event had this type lately, and it has no definition here.'
                  : known !== undefined && !isOwn
                    ? `As the newest ${type} has it.`
                    : ''}
            </span>
          </div>
          <div class="field">
            <label for={`${id}-stream`}>
              Stream {!isAppend && <span class="faint">without one, the workflow's own</span>}
            </label>
            <input
              id={`${id}-stream`}
              class="input mono"
              autocomplete="off"
              spellcheck={false}
              value={stream}
              onInput={event => setStream(event.currentTarget.value)}
            />
          </div>
          {isAppend && (
            <div class="field">
              <label for={`${id}-expected`}>Only if</label>
              <select
                id={`${id}-expected`}
                class="input"
                value={expected}
                onChange={event => setExpected(event.currentTarget.value as keyof typeof expectations)}
              >
                {Object.entries(expectations).map(([value, label]) => (
                  <option key={value} value={value}>
                    {label}
                  </option>
                ))}
              </select>
            </div>
          )}
          <JsonField
            label="Data"
            text={text}
            rows={10}
            onText={value => {
              setOwn(true)
              setText(value)
            }}
          />
          {refusal !== undefined && (
            <p class="err" role="alert">
              <Shape name="failed" />
              {refusal}
            </p>
          )}
        </section>
        <footer>
          <div class="grow">
            <Command line={line} />
          </div>
          <Button kind="main" type="submit" refused={missing || refusedFor('operate')}>
            {isAppend ? 'Append' : 'Publish'}
          </Button>
        </footer>
      </form>
    </aside>
  )
}

function oneLine(data: { readonly value: unknown } | undefined): string {
  const text = JSON.stringify(data?.value ?? {})
  return (text.length > 80 ? '{…}' : text).replaceAll("'", "'\\''")
}

interface Schema {
  readonly type?: string | readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly default?: unknown
  readonly anyOf?: readonly Schema[]
}

/** A value that has the fields of a schema, to be filled in. */
export function exampleOf(schema: Schema | undefined, depth = 0): unknown {
  if (schema === undefined || depth > 6) return {}
  if (schema.default !== undefined) return schema.default
  if (schema.const !== undefined) return schema.const
  if (schema.enum !== undefined) return schema.enum[0]
  if (schema.anyOf !== undefined) return exampleOf(schema.anyOf[0], depth + 1)
  const type = typeof schema.type === 'string' ? schema.type : schema.type?.[0]
  if (type === 'string') return ''
  if (type === 'number' || type === 'integer') return 0
  if (type === 'boolean') return false
  if (type === 'array') return []
  if (type === 'null') return null
  const fields = Object.entries(schema.properties ?? {})
  return Object.fromEntries(fields.map(([name, each]) => [name, exampleOf(each, depth + 1)]))
}
