/**
 * A TCP proxy between the store and its server, on loopback, that can lose, hold and break what goes through it.
 *
 *     store ──up──► proxy ──up──► server           await using proxy = await startProxy(server.url)
 *           ◄─down─       ◄─down─                  openStore({ url: proxy.url })
 *
 * The ends of a link are separate, as with a real proxy: the client's may break while what it sent is still on its
 * way, and the server goes on with it.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export type Direction = 'up' | 'down'

export interface TroubleProxy extends AsyncDisposable {
  readonly url: string
  /** The links whose client's end is whole. */
  readonly links: readonly Link[]
  /** How many links there have ever been. */
  readonly opened: number
  /** Whether new links are let through; otherwise they are closed at once. */
  accepting: boolean
  /** Holds what goes this way on all links there are now, and on new ones too if asked. */
  hold(direction: Direction, options?: { newLinks?: boolean }): void
  /** Lets this statement through, and then nothing down any more: it is done, and nobody hears of it. */
  loseAnswerTo(statement: RegExp): void
  /** Lets all of it through again. */
  release(): void
  /** Breaks the client's ends of all links. The server's ends stay until each is delivered or dropped. */
  cutClients(): Link[]
}

export interface Link {
  /** What is held on its way up, as text: statements are found by their names in it. */
  readonly heldUp: string
  /** Whether such a statement has gone up here. */
  carried(statement: RegExp): boolean
  hold(direction: Direction): void
  release(): void
  cutClient(): void
  /** Lets the server have what was held for it, and waits until it has done its work and gone. */
  deliver(): Promise<void>
  /** The server never gets it. */
  drop(): void
}

export async function startProxy(target: string): Promise<TroubleProxy> {
  const { hostname, port } = new URL(target)
  const links = new Set<Link>()
  const every = new Set<Link>()
  const holdNew = new Set<Direction>()
  let unanswered: RegExp | undefined
  let opened = 0
  const server = createServer(client => {
    if (!proxy.accepting) return void client.destroy()
    opened++
    const upstream = connect(Number(port), hostname)
    client.on('data', (chunk: Buffer) => {
      if (unanswered?.test(chunk.toString('latin1'))) link.hold('down')
    })
    const link = openLink(client, upstream, () => links.delete(link))
    for (const direction of holdNew) link.hold(direction)
    links.add(link)
    every.add(link)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(target)
  url.port = String((server.address() as AddressInfo).port)

  const proxy: TroubleProxy = {
    url: url.href,
    accepting: true,
    get links() {
      return [...links]
    },
    get opened() {
      return opened
    },
    hold(direction, { newLinks = false } = {}) {
      for (const link of links) link.hold(direction)
      if (newLinks) holdNew.add(direction)
    },
    loseAnswerTo(statement) {
      unanswered = statement
    },
    release() {
      unanswered = undefined
      holdNew.clear()
      for (const link of links) link.release()
    },
    cutClients() {
      unanswered = undefined
      const cut = [...links]
      for (const link of cut) link.cutClient()
      return cut
    },
    async [Symbol.asyncDispose]() {
      for (const link of every) {
        link.cutClient()
        link.drop()
      }
      server.close()
      await once(server, 'close')
    },
  }
  return proxy
}

function openLink(client: Socket, upstream: Socket, onClientGone: () => void): Link {
  const held: Record<Direction, Buffer[] | undefined> = { up: undefined, down: undefined }
  let cut = false
  let gone = ''
  const pass = (direction: Direction, to: Socket) => (chunk: Buffer) => {
    if (held[direction] !== undefined) held[direction].push(chunk)
    else if (!to.destroyed) to.write(chunk)
  }
  const flush = (direction: Direction, to: Socket): void => {
    const chunks = held[direction] ?? []
    held[direction] = undefined
    for (const chunk of chunks) if (!to.destroyed) to.write(chunk)
  }
  client.setNoDelay(true)
  upstream.setNoDelay(true)
  client.on('data', (chunk: Buffer) => {
    gone = (gone + chunk.toString('latin1')).slice(-65_536)
  })
  client.on('data', pass('up', upstream))
  upstream.on('data', pass('down', client))
  client.on('error', () => {})
  upstream.on('error', () => {})
  client.on('close', () => {
    onClientGone()
    if (!cut) upstream.end()
  })
  upstream.on('close', () => client.end())
  return {
    get heldUp() {
      return Buffer.concat(held.up ?? []).toString('latin1')
    },
    carried: statement => statement.test(gone),
    hold(direction) {
      held[direction] ??= []
    },
    release() {
      flush('up', upstream)
      flush('down', client)
    },
    cutClient() {
      cut = true
      client.destroy()
    },
    async deliver() {
      flush('up', upstream)
      const gone = upstream.destroyed ? undefined : once(upstream, 'close')
      // A server reads all there is before it sees the end.
      upstream.end()
      await gone
    },
    drop() {
      held.up = undefined
      upstream.destroy()
    },
  }
}
