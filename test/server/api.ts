/** A store that is served, and requests to it. */
import { onTestFinished } from 'vitest'
import type { ServerOptions } from '../../src/server/server.ts'

export interface Answered {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: the body of any answer.
  readonly body: any
}

export interface Served {
  readonly url: string
  get(path: string, headers?: Record<string, string>): Promise<Answered>
  send(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answered>
}

type Serving = { server(options: ServerOptions): Promise<{ readonly url: string }> }

/** With the role of an admin, unless the options say otherwise. */
export async function serve(store: Serving, options: Partial<ServerOptions> = {}): Promise<Served> {
  const { url } = await store.server({ port: 0, console: { access: 'admin' }, ...options })
  const send: Served['send'] = async (method, path, body, headers = {}) => {
    const response = await fetch(`${url}/api/v1${path}`, {
      method,
      headers: {
        ...(method === 'GET' ? {} : { 'content-type': 'application/json', origin: url }),
        ...headers,
      },
      ...(method === 'GET' ? {} : { body: JSON.stringify(body ?? {}) }),
    })
    const text = await response.text()
    return { status: response.status, headers: response.headers, body: parse(text) }
  }
  return { url, send, get: (path, headers) => send('GET', path, undefined, headers) }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

export interface Message {
  readonly event: string
  readonly id: string
  readonly data: unknown
}

export interface Feed {
  /** The next message of a topic. */
  next(topic: string): Promise<Message>
  close(): void
}

/** A live feed, as a browser reads it. `after`: the id of the last message. */
export async function openFeed(url: string, after?: string, more: Record<string, string> = {}): Promise<Feed> {
  const controller = new AbortController()
  onTestFinished(() => controller.abort())
  const headers: Record<string, string> = { ...more, ...(after === undefined ? {} : { 'last-event-id': after }) }
  const response = await fetch(url, { headers, signal: controller.signal })
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  return {
    async next(topic) {
      for (;;) {
        const end = text.indexOf('\n\n')
        if (end < 0) {
          const { value, done } = await reader.read()
          if (done) throw new Error('The feed has ended.')
          text += value
          continue
        }
        const fields = Object.fromEntries(
          text
            .slice(0, end)
            .split('\n')
            .map(line => line.split(/: ?(.*)/s) as [string, string]),
        )
        text = text.slice(end + 2)
        if (fields.event === topic) return { event: topic, id: fields.id!, data: JSON.parse(fields.data!) }
      }
    },
    close: () => controller.abort(),
  }
}
