/** `rillflow verify` on real servers: it passes, it fails with the reason where it has to, and it leaves nothing behind. */
import { expect, test } from 'vitest'
import { selfTest, verify } from '../../src/verify/verify.ts'
import { connect, long } from '../chaos/chaos.ts'
import { engine, postgresUrl } from '../support/engines.ts'
import { startPooler } from '../support/pooler.ts'
import { openFolder } from './shop.ts'

const ms = long ? 300_000 : 900

test('a server that is right is found right, and its schemas are dropped', async () => {
  const verdict = await verify({ url: postgresUrl(), ms })

  expect(verdict).toMatchObject({ isRight: true, rounds: expect.toSatisfy((rounds: number) => rounds > 0) })
  expect(verdict.checks.map(({ name }) => name)).toEqual(['sessions', 'ordering', 'appends', 'transactions'])
  expect(verdict.checks.filter(({ operations }) => operations === 0)).toEqual([])
  const client = await connect(postgresUrl())
  const { rows } = await client.query(`select nspname from pg_namespace where nspname like 'rillflow\\_verify\\_%'`)
  await client.end()
  expect(rows).toEqual([])
})

test('a server behind a pooler in transaction mode is found right', async () => {
  await using pooler = await startPooler(postgresUrl(), { mode: 'transaction', size: 20 })

  expect(await verify({ url: pooler.url, prepare: false, ms })).toMatchObject({ isRight: true })
})

test('a pooler in statement mode is found out, with the reason', async () => {
  await using pooler = await startPooler(postgresUrl(), { mode: 'statement' })
  const shop = await openFolder({ empty: true })

  const { code, stdout } = await shop.run(['verify', '--pooler', '--url', pooler.url])

  expect(code).toBe(3)
  expect(stdout).toContain('The statements of a transaction do not share a session (transaction blocks not allowed')
  expect(stdout).toContain('use its transaction mode')
})

test('verify needs a server', async () => {
  const shop = await openFolder({ empty: true })

  expect(await shop.run('verify', { env: { RILLFLOW_URL: '', DATABASE_URL: '' } })).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('verify needs a server'),
  })
})

if (engine === 'postgres-18')
  test('each wrong protocol is found out, for the right reason', async () => {
    const skipped = /^a follower.* never got position/
    const reasons: Record<string, RegExp> = {
      'nothing is announced': skipped,
      'an announcement is given back before the commit': skipped,
      // Each session has numbers of its own, so that positions go back in a stream, too.
      'positions are drawn in advance': /^a follower.* never got position|^[\w-]+ has version \d+ where/,
      'readers go up to the last position that was drawn': skipped,
      'readers look at the latest announcement only': skipped,
      'an append is sent again with new ids': /^an append is torn: 2 of 1 events are stored|4 of 2|6 of 3/,
      'a lost connection counts as a failure': /^an append was refused, and is stored/,
      'an expected version is not checked': /^an append expected order-\d+ at \d+, and got version \d+/,
      'transactions are not isolated': /^a (lost update|write skew|read that fits no order)/,
    }

    const { isRight, protocols } = await selfTest({ url: postgresUrl() })

    expect(protocols.map(({ name }) => name)).toEqual(Object.keys(reasons))
    for (const { name, problem } of protocols) expect(problem, name).toMatch(reasons[name]!)
    expect(isRight).toBe(true)
  })
