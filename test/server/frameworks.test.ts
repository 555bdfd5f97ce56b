/** `store.http` mounted in the real frameworks: pages, assets, sessions, actions and the live feed all reach it. */
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type * as Rillflow from '../../src/index.ts'
import { frameworks } from '../support/frameworks/frameworks.ts'
import { openFeed } from './api.ts'

/** The built package: only that has the pages. */
const { openStore } = (await import(pathToFileURL('dist/index.js').href)) as typeof Rillflow
let store: Rillflow.Store

beforeAll(async () => {
  store = await openStore({ memory: true, logger: false })
})

afterAll(async () => {
  await store.close()
})

const token = 'a-token-of-the-shop-that-is-long-enough'
const base = '/admin/rillflow'

for (const framework of frameworks)
  test(`in ${framework.name} the console opens, logs in, acts and follows`, async () => {
    const stream = `order-${frameworks.indexOf(framework)}`
    const handler = await store.http({ base, console: true, token })
    const { url } = await framework.mount(base, handler)
    const { origin } = new URL(url)

    const page = await (await fetch(`${url}/streams/order-1`)).text()
    const asset = /(?:src|href)="([^"]*assets\/[^"]+\.js)"/.exec(page)?.[1] ?? ''
    const script = await fetch(new URL(asset, origin))
    const nobody = await fetch(`${url}/api/v1/events`)
    const headers = { 'content-type': 'application/json', origin }
    const session = await fetch(`${url}/api/v1/session`, { method: 'POST', headers, body: JSON.stringify({ token }) })
    const cookie = session.headers.get('set-cookie')!.split(';')[0]!
    const feed = await openFeed(`${url}/api/v1/live?topics=events`, undefined, { cookie })
    const sent = await fetch(`${url}/api/v1/streams/${stream}/append`, {
      method: 'POST',
      headers: { ...headers, cookie },
      body: JSON.stringify({ type: 'OrderPlaced', data: { total: 5 } }),
    })
    const message = await feed.next('events')
    feed.close()
    const foreign = await fetch(`${url}/api/v1/streams/${stream}/archive`, {
      method: 'POST',
      headers: { ...headers, origin: 'http://shop.example', cookie },
      body: '{}',
    })

    expect(page).toContain(`"base":"${base}"`)
    expect([script.status, script.headers.get('content-type')]).toEqual([200, expect.stringContaining('javascript')])
    expect([nobody.status, session.status, sent.status, foreign.status]).toEqual([401, 200, 200, 403])
    expect(session.headers.get('set-cookie')).toContain(`Path=${base}`)
    expect(message.data).toMatchObject([{ stream, data: { total: 5 } }])
  })
