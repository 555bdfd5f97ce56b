/** Every exported function and its options have a description with an example that compiles and runs; every type has a description. */
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { shortLived } from '../support/embedded.ts'
import { root } from './pages.ts'

const run = promisify(execFile)
const entries: Record<string, string> = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).exports
// Inside the package, so that an example's `import 'rillflow'` is this package's own build.
const folder = join(root, '.test-results', 'hovers')

interface Exported {
  readonly entry: string
  readonly name: string
  readonly kind: 'function' | 'type' | 'other'
  /** The comment that the editor shows. */
  readonly comment: string
}

const symbols = Object.entries(entries)
  .filter(([, path]) => path.endsWith('.js'))
  .flatMap(([entry, path]) => exportedFrom(entry, path.replace('./dist/', 'src/').replace(/\.js$/, '.ts')))

test('every exported symbol but an error has a description, and every function and its options an example', () => {
  const described = symbols.filter(({ entry }) => entry !== './errors')

  expect(described.length).toBeGreaterThan(180)
  expect(described.filter(({ comment }) => comment === '').map(({ name }) => name)).toEqual([])
  const functions = described.filter(({ kind }) => kind === 'function')
  expect(functions.length).toBeGreaterThan(60)
  const options = described.filter(({ entry, name }) => entry === '.' && /(Options|Filter)$/.test(name))
  expect(options.length).toBeGreaterThan(8)
  expect([...functions, ...options].filter(({ comment }) => !comment.includes('@example'))).toEqual([])
})

test('every example compiles and runs', { timeout: 600_000 }, async () => {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  // Of two names that differ in their case alone, the files must not.
  const examples = new Map(symbols.map(({ name, kind, comment }) => [`${kind}-${name}`, exampleOf(comment)] as const))
  const written = [...examples].filter(([, code]) => code !== undefined) as [string, string][]
  writeFileSync(join(folder, 'shop.ts'), shop)
  for (const [name, code] of written) writeFileSync(join(folder, `${name}.example.ts`), withImports(code))
  const all = written.map(([name]) => `await import('./compiled/${name}.example.js')`)
  writeFileSync(join(folder, 'all.js'), `${all.join('\n')}\nprocess.exit(0)\n`)
  const compilerOptions = { noUnusedLocals: false, noEmit: false, rootDir: '.', outDir: 'compiled' }
  const extend = { extends: '../../tsconfig.json', compilerOptions, include: ['*.ts'] }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(extend))

  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
  const compiled = await run(process.execPath, [tsc, '-p', folder]).catch((error: { stdout: string }) => error)
  expect(compiled.stdout).toBe('')
  await run(process.execPath, [...shortLived, 'all.js'], { cwd: folder, timeout: 500_000 })
  rmSync(folder, { recursive: true, force: true })
})

/** The names in an example come from here, or from the entry that has them. */
const shop = `
  import {
    type AggregateInstance, defineAggregate, defineCollection, defineDocumentProjection, defineEvents, openStore,
  } from 'rillflow'
  export const events = defineEvents<
    | { type: 'OrderPlaced'; data: { customer: string; cents: number } }
    | { type: 'OrderShipped'; data: { carrier: string } }
  >()
  export const placed = events.create('OrderPlaced', { customer: 'Ada', cents: 4200 })
  export const Order = defineAggregate('order', {
    events,
    initial: () => ({ status: 'new' }),
    evolve: { OrderPlaced: () => ({ status: 'placed' }), OrderShipped: () => ({ status: 'shipped' }) },
    decide: (command: { carrier: string }) => ({ type: 'OrderShipped', data: { carrier: command.carrier } }),
  })
  export const orders = defineDocumentProjection('orders', {
    events,
    initial: () => ({ cents: 0 }),
    evolve: { OrderPlaced: (order, { data }) => ({ cents: order.cents + data.cents }) },
  })
  export interface Customer { name: string; city?: string; visits: number; tags: string[] }
  export const ada: Customer = { name: 'Ada', city: 'Leeds', visits: 4, tags: ['vip'] }
  export const customers = defineCollection<Customer>('customers', { search: ['name'] })
  export const store = await openStore({ memory: true, events, aggregates: [Order], projections: [orders] })
  await store.documents(customers).put('c-1', ada)`

const ofShop = ['events', 'placed', 'Order', 'orders', 'ada', 'customers', 'store']

function withImports(code: string): string {
  const isUsed = (name: string): boolean => new RegExp(`(?<![.'\\w-])${name}(?![\\w:'])`).test(code)
  const isDeclared = (name: string): boolean => new RegExp(`(const|class|function|interface) ${name}\\b`).test(code)
  const taken = new Set<string>()
  const lines: string[] = []
  for (const { entry, name, kind } of symbols) {
    if (taken.has(name) || !isUsed(name) || isDeclared(name)) continue
    taken.add(name)
    lines.push(`import ${kind === 'type' ? 'type ' : ''}{ ${name} } from '${entry.replace('.', 'rillflow')}'`)
  }
  const shared = ofShop.filter(name => isUsed(name) && !isDeclared(name))
  if (shared.length > 0) lines.push(`import { ${shared.join(', ')} } from './shop.ts'`)
  if (isUsed('Customer') && !isDeclared('Customer')) lines.push(`import type { Customer } from './shop.ts'`)
  return `${lines.join('\n')}\n${code}\nexport {}\n`
}

function exampleOf(comment: string): string | undefined {
  const text = comment
    .split('\n')
    .map(line => line.replace(/^\s*\* ?/, ''))
    .join('\n')
  return /@example\s+```ts\n(.*?)```/s.exec(text)?.[1]
}

/** What a file exports itself, and what it passes on. */
function exportedFrom(entry: string, path: string): Exported[] {
  const text = readFileSync(join(root, path), 'utf8')
  const own = [...text.matchAll(/^export (?:async )?(?:function|const|class|interface|type) (\w+)/gm)].map(([, name]) =>
    find(entry, name!, path),
  )
  const passed = [...text.matchAll(/^export (?:type )?\{([^}]*)\} from '([^']+)'/gm)].flatMap(([, list, from]) =>
    list!
      .split(',')
      .map(name => name.trim().replace(/^type /, ''))
      .filter(name => name !== '')
      .map(name => find(entry, name, normalize(join(dirname(path), from!)))),
  )
  const seen = new Set<string>()
  return [...own, ...passed].filter(({ name }) => !seen.has(name) && seen.add(name))
}

function find(entry: string, name: string, path: string): Exported {
  const text = readFileSync(join(root, path), 'utf8')
  const declared = new RegExp(
    `^export (?:async |abstract )?(function|const|class|interface|type) ${name}\\b`,
    'm',
  ).exec(text)
  if (declared === null) {
    const passed = [...text.matchAll(/^export (?:type )?\{([^}]*)\} from '([^']+)'/gm)]
    const [, , from] = passed.find(([, list]) => new RegExp(`\\b${name}\\b`).test(list!))!
    return find(entry, name, normalize(join(dirname(path), from!)))
  }
  const before = text.slice(0, declared.index).trimEnd()
  const comment = before.endsWith('*/') ? before.slice(before.lastIndexOf('/**')) : ''
  const [, word] = declared
  const kind = word === 'function' ? 'function' : word === 'interface' || word === 'type' ? 'type' : 'other'
  return {
    entry,
    name,
    kind,
    comment: path.endsWith('/errors.ts') && comment === '' ? '(an error has a page)' : comment,
  }
}
