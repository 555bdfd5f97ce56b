/**
 * The actor of an action: the name that `withActor` gives, else the one the store was opened with, else the user of the
 * operating system with the host, as in `ada@host-7`.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { hostname, userInfo } from 'node:os'
import { checkName } from '../core/name.ts'

const actors = new AsyncLocalStorage<string>()

export function checkActor(actor: string): string {
  return checkName('Actor', actor)
}

export function actingAs<T>(actor: string, work: () => T): T {
  return actors.run(actor, work)
}

export function currentActor(ofStore: string | undefined): string {
  return actors.getStore() ?? ofStore ?? userAndHost()
}

function userAndHost(): string {
  return `${userName()}@${hostname()}`.slice(0, 255)
}

/** A process in a container may run under a number that has no name. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `uid-${process.getuid?.() ?? 'unknown'}`
  }
}
