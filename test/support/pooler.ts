/**
 * A connection pooler as PgBouncer is one on the wire: clients connect to it, and it lends each of them one of its few
 * connections to the server, for a transaction or for a statement.
 *
 *     clients ──► pooler ──► two connections ──► server          await using pooler = await startPooler(url, { mode: 'transaction' })
 *
 * Like PgBouncer it does not know prepared statements, drops notifications that arrive while a connection is not lent,
 * refuses parameters of the start that it does not know, and has one SQLSTATE for all errors of its own. Unlike PgBouncer
 * it always lends the connection that was used longest ago, so that a client gets another one each time. A connection that
 * breaks takes its client with it, and a client that goes away in the middle its connection; another one is made then.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import pg from 'pg'

export interface PoolerOptions {
  readonly mode: 'transaction' | 'statement'
  /** Connections to the server. Default 2. */
  readonly size?: number
  /** More clients are refused. Default 100. */
  readonly maxClients?: number
}

export interface Pooler extends AsyncDisposable {
  readonly url: string
  /** More clients are refused. */
  maxClients: number
  /** Number of clients refused because there were too many. */
  readonly refused: number
  /** Breaks all its connections, and begins anew. */
  restart(): void
}

export async function startPooler(target: string, options: PoolerOptions): Promise<Pooler> {
  const { size = 2 } = options
  const backends = new Set<Backend>()
  const idle: Backend[] = []
  const waiting: Client[] = []
  const clients = new Set<Client>()
  let opening = 0
  let refused = 0

  const lend = (): void => {
    while (idle.length > 0 && waiting.length > 0) {
      const client = waiting.shift()!
      if (!client.socket.destroyed) link(client, idle.shift()!)
    }
    // Those that were lost meanwhile.
    while (backends.size + opening < size && waiting.length > 0) void open()
  }
  const open = async (): Promise<void> => {
    opening++
    const backend = await openBackend(target).catch(() => undefined)
    opening--
    // The server is away: clients are refused, and come again.
    if (backend === undefined) for (const { socket } of waiting.splice(0)) socket.destroy()
    else {
      backends.add(backend)
      idle.push(backend)
      backend.socket.on('close', () => lose(backend))
      lend()
    }
  }
  const lose = (backend: Backend): void => {
    backends.delete(backend)
    if (idle.includes(backend)) idle.splice(idle.indexOf(backend), 1)
    for (const client of clients)
      if (client.backend === backend) {
        client.backend = undefined
        client.socket.destroy()
      }
    lend()
  }
  const link = (client: Client, backend: Backend): void => {
    client.backend = backend
    backend.onMessage = (message, type) => {
      const status = type === 'Z' ? String.fromCharCode(message[5]!) : undefined
      if (status !== undefined) client.unanswered--
      if (status === 'T' && options.mode === 'statement')
        return release(client, 'transaction blocks not allowed in statement pooling mode')
      if (!client.socket.destroyed) client.socket.write(message)
      if (status === 'I' && client.unanswered === 0) release(client)
    }
    for (const message of client.held.splice(0)) forward(client, message)
  }
  const release = (client: Client, problem?: string): void => {
    const { backend } = client
    client.backend = undefined
    if (problem !== undefined) refuse(client.socket, problem)
    if (backend === undefined) return
    backend.onMessage = () => {}
    if (!backends.has(backend)) return
    if (problem === undefined) idle.push(backend)
    // Its transaction is rolled back, and its notices are dropped, before it is lent again.
    else void reset(backend).then(() => backends.has(backend) && idle.push(backend) && lend())
    lend()
  }
  const take = (client: Client, message: Buffer): void => {
    if (client.backend !== undefined) forward(client, message)
    else if (client.held.push(message) === 1) waiting.push(client)
    lend()
  }

  await Promise.all(Array.from({ length: size }, open))
  const server = createServer(socket => {
    const client: Client = { socket, held: [], unanswered: 0, backend: undefined }
    clients.add(client)
    socket.setNoDelay(true)
    socket.on('error', () => {})
    socket.on('close', () => {
      clients.delete(client)
      // In the middle of its work: the rest of the answers has no reader.
      client.backend?.socket.destroy()
    })
    let isStarted = false
    const read = messageReader()
    socket.on('data', chunk => {
      for (const message of read(chunk, () => isStarted)) {
        if (isStarted) take(client, message)
        else {
          if (clients.size > pooler.maxClients) refused++
          isStarted = start(socket, message, {
            database: new URL(target).pathname.slice(1),
            isFull: clients.size > pooler.maxClients,
          })
        }
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(target)
  url.port = String((server.address() as AddressInfo).port)
  const pooler: Pooler = {
    url: url.href,
    maxClients: options.maxClients ?? 100,
    get refused() {
      return refused
    },
    restart() {
      for (const { socket } of [...clients, ...backends]) socket.destroy()
    },
    async [Symbol.asyncDispose]() {
      pooler.restart()
      server.close()
      await once(server, 'close')
    },
  }
  return pooler
}

interface Client {
  readonly socket: Socket
  readonly held: Buffer[]
  /** Statements sent whose end has not come yet: a client may send several at once. */
  unanswered: number
  backend: Backend | undefined
}

interface Backend {
  readonly socket: Socket
  onMessage(message: Buffer, type: string): void
}

function forward(client: Client, message: Buffer): void {
  const type = String.fromCharCode(message[0]!)
  if (type === 'X') return void client.socket.destroy()
  if (type === 'Q' || type === 'S') client.unanswered++
  client.backend!.socket.write(message)
}

/** A connection that the driver has made, whose socket is then ours. */
async function openBackend(target: string): Promise<Backend> {
  const client = new pg.Client(target)
  client.on('error', () => {})
  await client.connect()
  const socket = (client as unknown as { connection: { stream: Socket } }).connection.stream
  const backend: Backend = { socket, onMessage: () => {} }
  const read = messageReader()
  socket.setNoDelay(true)
  socket.removeAllListeners('data')
  socket.on('data', chunk => {
    for (const message of read(chunk, () => true)) backend.onMessage(message, String.fromCharCode(message[0]!))
  })
  return backend
}

function reset(backend: Backend): Promise<void> {
  return new Promise(resolve => {
    backend.onMessage = (_, type) => {
      if (type !== 'Z') return
      backend.onMessage = () => {}
      resolve()
    }
    backend.socket.write(framed('Q', Buffer.from('rollback\0')))
  })
}

/** Cuts a stream into messages. Those before the start have no type. */
function messageReader(): (chunk: Buffer, isTyped: () => boolean) => Generator<Buffer> {
  let rest = Buffer.alloc(0)
  return function* (chunk, isTyped) {
    rest = Buffer.concat([rest, chunk])
    for (;;) {
      const head = isTyped() ? 1 : 0
      if (rest.length < head + 4) return
      const length = head + rest.readUInt32BE(head)
      if (rest.length < length) return
      const message = rest.subarray(0, length)
      rest = rest.subarray(length)
      yield message
    }
  }
}

const sslRequest = 80877103
const knownParameters = ['user', 'database', 'client_encoding', 'datestyle', 'timezone', 'application_name']

/** Whether the client has started a session. */
function start(socket: Socket, message: Buffer, { database, isFull }: { database: string; isFull: boolean }): boolean {
  const code = message.readUInt32BE(4)
  if (code === sslRequest) {
    socket.write('N')
    return false
  }
  if (code >>> 16 !== 3) {
    socket.destroy()
    return false
  }
  const texts = message.toString('utf8', 8).split('\0')
  const given = new Map<string, string>()
  for (let at = 0; texts[at]; at += 2) given.set(texts[at]!.toLowerCase(), texts[at + 1]!)
  const unknown = [...given.keys()].find(name => !knownParameters.includes(name))
  if (isFull) refuse(socket, 'no more connections allowed (max_client_conn)')
  else if (unknown !== undefined) refuse(socket, `unsupported startup parameter: ${unknown}`)
  else if (given.get('database') !== database) refuse(socket, `no such database: ${given.get('database')}`)
  else
    socket.write(
      Buffer.concat([framed('R', Buffer.alloc(4)), framed('K', Buffer.alloc(8)), framed('Z', Buffer.from('I'))]),
    )
  return true
}

function refuse(socket: Socket, message: string): void {
  const fields = ['SFATAL', 'VFATAL', 'C08P01', `M${message}`].map(field => `${field}\0`).join('')
  if (!socket.destroyed) socket.end(framed('E', Buffer.from(`${fields}\0`)))
}

function framed(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeUInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}
