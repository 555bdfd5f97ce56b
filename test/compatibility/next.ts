/**
 * Next for real: an application with route handlers that append, send events as they come and mount the console is built and
 * started by Next's own server.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Case } from './cases.ts'

export const next: Case = {
  group: 'Frameworks',
  name: 'Next',
  async run(workspace, servers) {
    const folder = await workspace.folder('next', ['next', 'react', 'react-dom'])
    for (const path of ['app/orders/[id]', 'app/live', 'app/admin/[[...path]]'])
      await mkdir(join(folder.path, path), { recursive: true })
    for (const [path, text] of Object.entries(application)) await folder.write(path, text)
    const env = { DATABASE_URL: await servers.url(18), NEXT_TELEMETRY_DISABLED: '1' }
    const bin = join(folder.path, 'node_modules/next/dist/bin/next')
    await folder.run('node', [bin, 'build'], env)
    const said = await folder.run('node', ['check.mjs', bin], env)
    if (!said.includes('works')) throw new Error(said.trim().slice(-200))
    const note = 'Route handlers on the Node runtime: append, `eventStream`, the console.'
    return { version: await folder.version('next'), note }
  },
}

const application: Readonly<Record<string, string>> = {
  'next.config.mjs': `
    export default { serverExternalPackages: ['rillflow'] }`,

  'store.js': `
    import { openStore } from 'rillflow'
    const open = () => openStore({ url: process.env.DATABASE_URL, schema: 'next', migrate: true })
    export const store = () => (globalThis.shop ??= open())`,

  'app/layout.js': `
    export default ({ children }) => <html><body>{children}</body></html>`,

  'app/page.js': `
    export default () => <p>shop</p>`,

  'app/orders/[id]/route.js': `
    import { errorResponse, idempotencyKey } from 'rillflow/http'
    import { store } from '../../../store.js'
    export const runtime = 'nodejs'
    export async function POST(request, { params }) {
      const { id } = await params
      const options = { idempotencyKey: idempotencyKey(request), expected: 'empty' }
      try {
        const event = { type: 'OrderPlaced', data: await request.json() }
        return Response.json(await (await store()).events.append('order-' + id, event, options))
      } catch (error) {
        return errorResponse(error)
      }
    }`,

  'app/live/route.js': `
    import { eventStream } from 'rillflow/http'
    import { store } from '../../store.js'
    export const runtime = 'nodejs'
    export const dynamic = 'force-dynamic'
    export const GET = async request => eventStream(await store(), request)`,

  'app/admin/[[...path]]/route.js': `
    import { store } from '../../../store.js'
    export const runtime = 'nodejs'
    export const dynamic = 'force-dynamic'
    const handler = async request =>
      (globalThis.admin ??= (await store()).http({ base: '/admin', console: true, token: 'secret-of-the-test-1234567890' })).then
        ? (await globalThis.admin)(request)
        : globalThis.admin(request)
    export { handler as GET, handler as POST }`,

  'check.mjs': `
    import { spawn } from 'node:child_process'
    const server = spawn(process.execPath, [process.argv[2], 'start', '-p', '0', '-H', '127.0.0.1'], { stdio: ['ignore', 'pipe', 'inherit'] })
    let said = ''
    for await (const chunk of server.stdout) if (/Ready/.test((said += chunk))) break
    const url = /http:\\/\\/127\\.0\\.0\\.1:\\d+/.exec(said)[0]
    const post = (id, key) => fetch(url + '/orders/' + id, { method: 'POST', body: '{"cents":1}', headers: { 'idempotency-key': key } })
    const live = async after => {
      const reader = (await fetch(url + '/live', { headers: after === undefined ? {} : { 'last-event-id': after } })).body
        .pipeThrough(new TextDecoderStream()).getReader()
      let text = ''
      return { reader, until: async wanted => { while (!text.includes(wanted)) text += (await reader.read()).value; return text } }
    }
    try {
      const first = await live()
      await first.until('id: ')
      const placed = await (await post('1', 'a')).json()
      const again = await (await post('1', 'a')).json()
      const late = await post('1', 'b')
      await first.until('order-1')
      await first.reader.cancel()
      await post('2', 'c')
      const second = await live(String(placed.position))
      const missed = await second.until('order-2')
      await second.reader.cancel()
      const page = await fetch(url + '/admin', { headers: { accept: 'text/html' } })
      const api = await fetch(url + '/admin/api/v1/streams', { headers: { authorization: 'Bearer secret-of-the-test-1234567890' } })
      const refused = await fetch(url + '/admin/api/v1/streams')
      const seen = [again.repeated, late.status, missed.includes('order-1'), page.status, api.status, refused.status].join()
      console.log(seen === 'true,409,false,200,200,401' ? 'works' : seen)
    } finally {
      server.kill()
    }`,
}
