/** The servers of a store: the code is loaded with the first that is started, and all of them close with the store. */
import type { ServerOptions, ServerSource, StoreServer } from './http.ts'

export interface StoreServers {
  start(options: ServerOptions): Promise<StoreServer>
  close(): Promise<void>
}

export function storeServers(sources: () => readonly ServerSource[]): StoreServers {
  const servers = new Set<StoreServer>()
  return {
    async start(options) {
      const { startServer } = await import('./http.ts')
      const server = await startServer(sources, options)
      servers.add(server)
      return server
    },
    async close() {
      await Promise.all([...servers].map(each => each.close()))
    },
  }
}
