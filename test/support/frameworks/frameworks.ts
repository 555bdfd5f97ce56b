/**
 * The frameworks that people mount a handler of web requests in, each for real and listening on loopback.
 *
 *     for (const framework of frameworks)
 *       const { url } = await framework.mount('/admin', handler)      GET http://127.0.0.1:…/admin/x reaches the handler
 *
 * `mount` is what a user writes in that framework, so what is shown here holds for the guide. A framework that takes the
 * path of the mount away, such as Express, does so here, too. Each server ends with the test.
 */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { onTestFinished } from 'vitest'
import { nodeListener } from '../../../src/integrations/http.ts'

export type WebHandler = (request: Request) => Response | Promise<Response>

export interface Mounted {
  /** The address of the mount, without a slash at its end. */
  readonly url: string
}

export interface Framework {
  readonly name: string
  /** All methods and all paths from `path` on reach the handler. */
  mount(path: string, handler: WebHandler): Promise<Mounted>
}

const hono: Framework = {
  name: 'Hono',
  async mount(path, handler) {
    const app = new Hono()
    app.all(path, c => handler(c.req.raw))
    app.all(`${path}/*`, c => handler(c.req.raw))
    const server = await new Promise<Server>(resolve => {
      const started = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(started as Server))
    })
    return mounted(server, path)
  },
}

const expressApp: Framework = {
  name: 'Express',
  async mount(path, handler) {
    const app = express()
    app.use(express.json())
    app.use(path, nodeListener(handler))
    return mounted(await listening(createServer(app)), path)
  },
}

const fastifyApp: Framework = {
  name: 'Fastify',
  async mount(path, handler) {
    const app = fastify({ forceCloseConnections: true })
    const listener = nodeListener(handler)
    app.register((scope, _options, done) => {
      // The handler reads the bodies of its requests itself.
      scope.removeAllContentTypeParsers()
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
      for (const route of [path, `${path}/*`])
        scope.all(route, (request, reply) => {
          reply.hijack()
          return listener(request.raw, reply.raw)
        })
      done()
    })
    await app.listen({ port: 0, host: '127.0.0.1' })
    return mounted(app.server, path)
  },
}

const node: Framework = {
  name: 'node:http',
  async mount(path, handler) {
    const listener = nodeListener(handler)
    const server = createServer((incoming, outgoing) => {
      if (incoming.url === path || incoming.url?.startsWith(`${path}/`) || incoming.url?.startsWith(`${path}?`))
        return void listener(incoming, outgoing)
      outgoing.writeHead(404).end()
    })
    return mounted(await listening(server), path)
  },
}

export const frameworks: readonly Framework[] = [hono, expressApp, fastifyApp, node]

function listening(server: Server): Promise<Server> {
  return new Promise(resolve => server.listen(0, '127.0.0.1', () => resolve(server)))
}

function mounted(server: Server, path: string): Mounted {
  onTestFinished(
    () =>
      new Promise<void>(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  )
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}` }
}
