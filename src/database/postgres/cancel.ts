/**
 * Ends a statement that is given up, on the server as well: it would otherwise go on there, next to those that the pool sends
 * on new connections, until it has its result.
 *
 *     given up ──► a request to cancel, on a socket of its own ──► the connection answers: it is free again
 *                                                             └──► no answer: the connection is closed
 *
 * Where requests do not get through, two settings of our own sessions help: `statement_timeout`, and
 * `client_connection_check_interval`, which makes a server end the statement of a connection that is gone.
 */
import { once } from 'node:events'
import { connect } from 'node:net'
import type pg from 'pg'

/** How long the server may take to end a statement. */
const cancelMs = 1_000

/** True if the server has ended the statement that runs on the connection, which can be used again. */
export async function cancelStatement(client: pg.PoolClient): Promise<boolean> {
  const inside = client as unknown as Inside
  const limit = AbortSignal.timeout(cancelMs)
  const free = once(client as unknown as NodeJS.EventEmitter, 'drain', { signal: limit }).then(
    () => true,
    () => false,
  )
  await requestCancel(inside, limit)
  return free
}

/** Parts of a client that its types do not show. */
interface Inside {
  readonly host?: string
  readonly port?: number
  readonly processID?: number | null
  readonly secretKey?: number | null
}

/** The server closes the socket when it has passed the request on. Nothing says whether it had an effect. */
function requestCancel({ host, port, processID, secretKey }: Inside, limit: AbortSignal): Promise<void> {
  if (typeof processID !== 'number' || typeof secretKey !== 'number' || host === undefined) return Promise.resolve()
  const request = Buffer.alloc(16)
  request.writeInt32BE(16, 0)
  request.writeInt32BE(cancelCode, 4)
  request.writeInt32BE(processID, 8)
  request.writeInt32BE(secretKey, 12)
  const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port ?? 5432, host)
  return new Promise(resolve => {
    socket.on('error', () => {})
    socket.on('close', () => resolve())
    socket.on('connect', () => socket.end(request))
    socket.resume()
    limit.addEventListener('abort', () => socket.destroy(), { once: true })
  })
}

const cancelCode = 80_877_102
