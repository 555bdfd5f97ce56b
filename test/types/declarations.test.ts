/**
 * Declarations of a program that uses the package: the compiler can name every type that is inferred, with the names of the
 * package. A type that it cannot name is an error for users who build libraries (`declaration: true`).
 */
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'

/** Functions whose results are inferred, as helpers of programs are. */
const helpers = `
import { openStore, type Store } from 'rillflow'
import { customers } from './customers.ts'
import type { ShopEvents } from './events.ts'
import { Order } from './order.ts'
import { orders, sales } from './read-models.ts'
import shop from './rillflow.config.ts'

type Shop = Store<ShopEvents>
export const open = () => openStore(shop)
export const append = (store: Shop) => store.events.append('order-1', { type: 'OrderPaid', data: { receipt: 'r' } })
export const read = (store: Shop) => store.events.read('order-1')
export const publish = (store: Shop) => store.workflows.publish('OrderPaid', { receipt: 'r' })
export const status = async (store: Shop) => (await publish(store)).waitUntilSettled()
export const handle = (store: Shop) => store.handle(Order, 'order-1', { type: 'Ship', carrier: 'Swift' })
export const order = (store: Shop) => store.documents(orders).get('order-1')
export const kept = (store: Shop) => store.documents(customers)
export const query = (store: Shop) => store.rows(sales).limit(5)
export const handleSession = (store: Shop) => store.handle(async () => 'done')
export const session = (store: Shop) => store.session()
export const save = (store: Shop) => store.session().save()
export const start = (store: Shop) => store.start()
export const deadLetters = (store: Shop) => store.deadLetters.list()
export const consumers = (store: Shop) => store.consumers.list()
export const runners = (store: Shop) => store.runners.list()
export const workflows = (store: Shop) => store.workflows.list()
export const streams = (store: Shop) => store.streams.list()
export const history = (store: Shop) => store.documents(customers).history('c-1')
`

test('every type that a program infers has a name in the package', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-declarations-'))
  try {
    await cp('examples/shop', folder, { recursive: true })
    await writeFile(join(folder, 'helpers.ts'), helpers)
    await mkdir(join(folder, 'node_modules'))
    await symlink(resolve('.'), join(folder, 'node_modules', 'rillflow'))
    await symlink(resolve('node_modules/zod'), join(folder, 'node_modules', 'zod'))
    const compilerOptions = {
      ...{ strict: true, exactOptionalPropertyTypes: true, skipLibCheck: true, preserveSymlinks: true },
      ...{ target: 'es2022', lib: ['es2023', 'esnext.disposable'], module: 'nodenext' },
      ...{ declaration: true, emitDeclarationOnly: true, allowImportingTsExtensions: true },
      ...{ rootDir: '.', outDir: 'declared', types: ['node'], typeRoots: [resolve('node_modules/@types')] },
    }
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['helpers.ts'] }))

    const output = await new Promise<string>(done => {
      const compiler = resolve('node_modules/typescript/bin/tsc')
      execFile(process.execPath, [compiler, '-p', folder, '--pretty', 'false'], (_, stdout) => done(stdout))
    })
    expect(output).toBe('')
    for (const name of ['helpers', 'order', 'read-models', 'workflows', 'rillflow.config']) {
      const text = await readFile(join(folder, 'declared', `${name}.d.ts`), 'utf8')
      expect(text).not.toContain('dist/')
      expect(text).not.toMatch(/\bany\b/)
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})
