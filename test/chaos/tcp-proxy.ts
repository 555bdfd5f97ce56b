/**
 * A TCP proxy between the store and its server, on loopback, that can drop, hold and break the traffic.
 *
 *     store ──up──► proxy ──up──► server           await using proxy = await startProxy(server.url)
 *           ◄─down─       ◄─down─                  openStore({ url: proxy.url })
 *
 * The ends of a link are separate, as in a real proxy: the client's end may break while its data is still on the way, and
 * the server continues with it.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export type Direction = 'up' | 'down'

export interface TroubleProxy extends AsyncDisposable {
  readonly url: string
  /** The links whose client end is open. */
  readonly links: readonly Link[]
  /** Number of links since the start. */
  readonly opened: number
  /** Whether new links are accepted; otherwise they are closed at once. */
  accepting: boolean
  /** Holds the traffic in this direction on all current links, and on request also on new ones. */
  hold(direction: Direction, options?: { newLinks?: boolean }): void
  /** Lets this statement through, and then nothing down: it is executed, and its answer is lost. */
  loseAnswerTo(statement: RegExp): void
  /** Lets all traffic through again. */
  release(): void
  /** New links lead to another server; the present ones are broken at both ends. A floating address does that. */
  switchTo(target: string): void
  /** Breaks the client ends of all links. The server ends stay until each is delivered or dropped. */
  cutClients(): Link[]
}

export interface Link {
  /** Data held on its way up, as text: statements are found by their labels. */
  readonly heldUp: string
  /** Whether such a statement has passed up here. */
  carried(statement: RegExp): boolean
  hold(direction: Direction): void
  release(): void
  cutClient(): void
  /** Delivers the held data to the server, and waits until the server has processed it and closed. */
  deliver(): Promise<void>
  /** The server never gets the held data. */
  drop(): void
}

export async function startProxy(target: string): Promise<TroubleProxy> {
  let { hostname, port } = new URL(target)
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
    switchTo(other) {
      ;({ hostname, port } = new URL(other))
      for (const link of proxy.cutClients()) link.drop()
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
      // A server reads all data before it sees the end.
      upstream.end()
      await gone
    },
    drop() {
      held.up = undefined
      upstream.destroy()
    },
  }
}
