/** One listening connection per channel, for all who listen on a database: their number must not be that of the tenants. */
import type { Database, Listener } from './database.ts'

interface Shared {
  readonly listener: Listener
  readonly hearers: Set<(payload: string) => void>
}

export function shareListeners(database: Database): Database {
  const channels = new Map<string, Shared>()

  const open = (channel: string): Shared => {
    const hearers = new Set<(payload: string) => void>()
    const listener = database.listen(channel, payload => {
      for (const hear of [...hearers]) hear(payload)
    })
    const shared = { listener, hearers }
    channels.set(channel, shared)
    return shared
  }

  return {
    ...database,
    listen(channel, onNotify) {
      const shared = channels.get(channel) ?? open(channel)
      const hear = (payload: string): void => onNotify(payload)
      shared.hearers.add(hear)
      return {
        ready: shared.listener.ready,
        async close() {
          shared.hearers.delete(hear)
          if (shared.hearers.size > 0 || channels.get(channel) !== shared) return
          channels.delete(channel)
          await shared.listener.close()
        },
      }
    },
  }
}
