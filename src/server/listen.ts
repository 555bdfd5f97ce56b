/**
 * Listening on a port of `node:http`. Requests are small: 8 KiB of headers, and bodies are limited by the routes.
 */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { once, settledWithin } from '../core/abort.ts'
import { InvalidOption } from '../core/errors.ts'
import type { App } from './app.ts'
import { limitConnections } from './connections.ts'
import type { StoreServer } from './server.ts'

const drainMs = 1_000
const limits = {
  maxHeaderSize: 8 * 1024,
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  keepAliveTimeout: 5_000,
  // Node's default is 30 s.
  connectionsCheckingInterval: 1_000,
}
const maxConnections = 100

export async function listenOn(app: App, port: number, host: string): Promise<StoreServer> {
  const listener = getRequestListener((request, { incoming }) => app.answer(request, incoming.socket.remoteAddress), {
    overrideGlobalObjects: false,
    hostname: 'localhost',
  })
  const server = createServer(limits, (incoming, outgoing) => void listener(incoming, outgoing))
  limitConnections(server, maxConnections)
  await listen(server, port, host)
  const bound = (server.address() as AddressInfo).port
  const close = once(async () => {
    app.close()
    await stop(server)
  })
  const name = host.includes(':') ? `[${host}]` : host
  return { url: `http://${name}:${bound}`, port: bound, close, [Symbol.asyncDispose]: close }
}

type Explanation = (port: number, host: string) => { option: string; reason: string }

/** Why the server cannot listen there, by the code of the system's error. */
const explanations: Readonly<Record<string, Explanation>> = {
  EADDRINUSE: port => ({
    option: 'port',
    reason: `Port ${port} is used by another program. Give another port, or 0 for a free one.`,
  }),
  EACCES: port => ({
    option: 'port',
    reason: `Port ${port} may not be used by this account. Give a port from 1024 on.`,
  }),
  EADDRNOTAVAIL: (_, host) => ({
    option: 'host',
    reason: `Host ${host} is not an address of this machine. Give one of its addresses.`,
  }),
  ENOTFOUND: (_, host) => ({
    option: 'host',
    reason: `Host ${host} is not a known name. Check the name, or give an address.`,
  }),
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const explain = explanations[error.code ?? '']
      reject(explain === undefined ? error : new InvalidOption(explain(port, host), error))
    })
    server.listen(port, host, resolve)
  })
}

async function stop(server: Server): Promise<void> {
  const closed = new Promise<void>(resolve => server.close(() => resolve()))
  server.closeIdleConnections()
  await settledWithin(closed, drainMs)
  server.closeAllConnections()
  await closed
}
