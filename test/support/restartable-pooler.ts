/**
 * A small pooler in transaction or statement mode, on loopback, that can be restarted.
 *
 *     client ──┐                ┌── session        await using pooler = await startPooler(server.url, { mode: 'transaction' })
 *     client ──┼──► pooler ─────┤                  openStore({ url: pooler.url, prepare: false, listen: false })
 *     client ──┘                └── session
 *
 * A client has a session from its first message until the server is ready and, in transaction mode, outside a transaction. In
 * statement mode the session is given back at once, and a transaction that would stay open is refused and ended, as PgBouncer
 * does. A client that goes away in the middle takes its session with it.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import pg from 'pg'

export interface PoolerOptions {
  readonly mode: 'transaction' | 'statement'
  /** Sessions on the server. Default 4. */
  readonly maxSessions?: number
}

export interface Pooler extends AsyncDisposable {
  readonly url: string
  /** Breaks all its connections, and begins anew. */
  restart(): void
}

interface Client {
  readonly socket: Socket
  session: Session | undefined
  /** Messages that wait for a session. */
  waiting: Buffer[]
  /** Answers that are still to come: one for each query or sync. */
  open: number
}

interface Session {
  readonly socket: Socket
  client: Client | undefined
}

export async function startPooler(target: string, { mode, maxSessions = 4 }: PoolerOptions): Promise<Pooler> {
  const clients = new Set<Client>()
  const sessions = new Set<Session>()
  const idle: Session[] = []
  const queue: Client[] = []
  let opening = 0

  const assign = (): void => {
    while (queue.length > 0) {
      const session = idle.pop()
      if (session === undefined) {
        if (sessions.size + opening < maxSessions) void open()
        return
      }
      const client = queue.shift()!
      if (!clients.has(client)) {
        idle.push(session)
        continue
      }
      session.client = client
      client.session = session
      for (const message of client.waiting.splice(0)) session.socket.write(message)
    }
  }
  const open = async (): Promise<void> => {
    opening++
    try {
      const session: Session = { socket: await openSession(target), client: undefined }
      sessions.add(session)
      idle.push(session)
      session.socket.on(
        'data',
        messages(false, message => answer(session, message)),
      )
      session.socket.on('close', () => drop(session))
    } catch {
      // The server is away: clients are refused, and come again.
      for (const client of queue.splice(0)) client.socket.destroy()
    } finally {
      opening--
      assign()
    }
  }
  const drop = (session: Session): void => {
    sessions.delete(session)
    if (idle.includes(session)) idle.splice(idle.indexOf(session), 1)
    session.socket.destroy()
    session.client?.socket.destroy()
    assign()
  }
  const answer = (session: Session, message: Buffer): void => {
    const { client } = session
    if (client === undefined) return
    const isReady = message[0] === READY
    if (isReady) client.open--
    const isInTransaction = isReady && message[5] !== IDLE
    if (isInTransaction && mode === 'statement') {
      session.client = undefined
      client.session = undefined
      client.socket.end(errorMessage('08P01', 'transaction blocks not allowed in statement pooling mode'))
      drop(session)
      return
    }
    client.socket.write(message)
    if (!isReady || client.open > 0 || isInTransaction) return
    client.session = undefined
    session.client = undefined
    idle.push(session)
    assign()
  }
  const ask = (client: Client, message: Buffer): void => {
    if (message[0] === QUERY || message[0] === SYNC) client.open++
    if (message[0] === TERMINATE) client.socket.end()
    else if (client.session !== undefined) client.session.socket.write(message)
    else {
      client.waiting.push(message)
      if (!queue.includes(client)) queue.push(client)
      assign()
    }
  }

  const server = createServer(socket => {
    const client: Client = { socket, session: undefined, waiting: [], open: 0 }
    clients.add(client)
    socket.setNoDelay(true)
    socket.on('error', () => {})
    socket.on(
      'data',
      messages(true, (message, isFirst) => (isFirst ? greet(socket) : ask(client, message))),
    )
    socket.on('close', () => {
      clients.delete(client)
      if (client.session !== undefined) drop(client.session)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(target)
  url.port = String((server.address() as AddressInfo).port)
  const restart = (): void => {
    for (const { socket } of clients) socket.destroy()
    for (const session of sessions) drop(session)
  }
  return {
    url: url.href,
    restart,
    async [Symbol.asyncDispose]() {
      restart()
      server.close()
      await once(server, 'close')
    },
  }
}

const [QUERY, SYNC, TERMINATE, READY, IDLE] = [...'QSXZI'].map(letter => letter.charCodeAt(0)) as number[]

/** Whole messages out of chunks. The first one of a client has no type. */
function messages(isClient: boolean, take: (message: Buffer, isFirst: boolean) => void): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0)
  let isFirst = isClient
  return chunk => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    for (;;) {
      const head = isFirst ? 0 : 1
      if (rest.length < head + 4) return
      const length = head + rest.readInt32BE(head)
      if (rest.length < length) return
      const message = rest.subarray(0, length)
      rest = rest.subarray(length)
      const wasFirst = isFirst
      isFirst = false
      take(message, wasFirst)
    }
  }
}

/** Every client may use it: it is for tests, on loopback. */
function greet(socket: Socket): void {
  const parameters = { client_encoding: 'UTF8', server_version: '18.0', standard_conforming_strings: 'on' }
  socket.write(
    Buffer.concat([
      frame('R', int32(0)),
      ...Object.entries(parameters).map(([name, value]) => frame('S', Buffer.from(`${name}\0${value}\0`))),
      frame('K', Buffer.concat([int32(1), int32(1)])),
      frame('Z', Buffer.from('I')),
    ]),
  )
}

function errorMessage(code: string, message: string): Buffer {
  return frame('E', Buffer.from(`SFATAL\0VFATAL\0C${code}\0M${message}\0\0`))
}

function frame(type: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(type), int32(4 + body.length), body])
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}

/** A session of the server, with the password dealt with by the driver, which is then taken off its socket. */
async function openSession(target: string): Promise<Socket> {
  const client = new pg.Client({ connectionString: target, application_name: 'pooler' })
  client.on('error', () => {})
  await client.connect()
  const { stream } = (client as unknown as { connection: { stream: Socket } }).connection
  stream.removeAllListeners()
  stream.on('error', () => {})
  stream.setNoDelay(true)
  return stream
}
