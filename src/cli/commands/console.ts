/** `rillflow console`: serves the console of any store, without running anything of it. */
import { isRillflowError } from '../../core/errors.ts'
import type { StoreServer } from '../../server/server.ts'
import { type Command, defineCommand } from '../command.ts'
import { warningLogger } from '../output/output.ts'
import { healthOptions, parseAddress } from './run.ts'

const defaultPort = 9464

export const console: Command = defineCommand({
  description:
    'Serves the console until Ctrl-C, on this machine alone unless --bind and --token are given. It runs nothing: what needs the code of a projection or a handler is done where `rillflow run` has it. Without a token the console only reads, unless --access says more.',
  options: {
    bind: {
      kind: 'text',
      value: 'HOST:PORT',
      env: 'RILLFLOW_CONSOLE_BIND',
      summary: 'Where to listen; port 0 takes a free port. Default: 127.0.0.1:9464, or a free port if that is used',
    },
    token: healthOptions.token,
    access: {
      kind: 'text',
      choices: ['watch', 'read', 'operate', 'admin'],
      summary: 'What it may do. Default: read, or operate with a token',
    },
  },
  examples: [
    'rillflow console',
    'rillflow console --url postgres://localhost/shop',
    'rillflow console --access operate',
  ],
  async run({ out, open, options, signal }) {
    const address = parseAddress({ healthBind: options.bind, token: options.token }, '--bind')
    const { store } = await open({ logger: warningLogger(out) })
    const given = { token: options.token, console: options.access === undefined ? true : { access: options.access } }
    const start = (host: string, port: number): Promise<StoreServer> => store.server({ host, port, ...given })
    const server =
      address !== undefined
        ? await start(address.host, address.port)
        : await start('127.0.0.1', defaultPort).catch((error: unknown) => {
            if (!isRillflowError(error, 'invalid_option')) throw error
            return start('127.0.0.1', 0)
          })
    out.line({ console: server.url }, ({ colour }) => `Console: ${colour.bold(server.url)}. Press Ctrl-C to stop.`)
    await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve(), { once: true }))
    return 0
  },
})
