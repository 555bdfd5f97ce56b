/**
 * Limits the connections of a server without letting patient clients keep others out: a new connection takes the place of
 * the one that has been idle for longest. A connection whose request is being answered is never cut off.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

export function limitConnections(server: Server, maxConnections: number): void {
  // In the order in which they were opened, or completed their last request.
  const idle = new Set<Socket>()
  const busy = new Set<Socket>()
  server.on('connection', socket => {
    if (idle.size + busy.size >= maxConnections) {
      const [oldest] = idle
      if (oldest === undefined) return void socket.destroy()
      idle.delete(oldest)
      oldest.destroy()
    }
    idle.add(socket)
    socket.once('close', () => {
      idle.delete(socket)
      busy.delete(socket)
    })
  })
  server.prependListener('request', ({ socket }, response) => {
    if (!idle.delete(socket)) return
    busy.add(socket)
    response.once('close', () => {
      if (busy.delete(socket) && !socket.destroyed) idle.add(socket)
    })
  })
}
