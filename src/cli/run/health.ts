/** `--health-bind`: /health and /metrics beside what is run. Beyond this machine a token is asked for, before anything is opened. */
import { isLoopback } from '../../server/access.ts'
import type { StoreServer } from '../../server/server.ts'
import type { Store } from '../../store.ts'
import type { Output } from '../output/output.ts'
import { WrongUsage } from '../usage.ts'

export const healthOptions = {
  healthBind: {
    kind: 'text',
    value: 'HOST:PORT',
    env: 'RILLFLOW_HEALTH_BIND',
    summary: 'Answer /health/live, /health/ready and /metrics there; port 0 takes a free one',
  },
  token: {
    kind: 'text',
    value: 'TOKEN',
    env: 'RILLFLOW_TOKEN',
    summary: 'What /metrics asks for, needed beyond loopback; others of the machine can see a flag, but no variable',
  },
} as const

export interface Bind {
  readonly host: string
  readonly port: number
  readonly token: string | undefined
}

export function bindOf(given: {
  readonly healthBind: string | undefined
  readonly token: string | undefined
}): Bind | undefined {
  if (given.healthBind === undefined) return undefined
  const [, ipv6, name, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(given.healthBind) ?? []
  const [host, port] = [ipv6 ?? name, Number(digits)]
  if (host === undefined || !(port <= 65_535))
    throw new WrongUsage({
      reason: `--health-bind must be HOST:PORT, not ${JSON.stringify(given.healthBind)}`,
      hint: '--health-bind 127.0.0.1:9464',
    })
  const { token } = given
  if (token === undefined && !isLoopback(host))
    throw new WrongUsage({
      reason: `--health-bind ${given.healthBind} listens beyond this machine, and /metrics is only for those who know a token`,
      hint: '--token TOKEN, or RILLFLOW_TOKEN in the environment',
    })
  return { host, port, token }
}

export async function startHealth(store: Store, bind: Bind, out: Output): Promise<StoreServer> {
  const server = await store.server(bind)
  out.note(`Health and metrics: ${server.url}/health/ready, ${server.url}/metrics`)
  return server
}
