/** The combinations: each resolves to the version that was tried and what was seen, or rejects with the failure. */
import { join } from 'node:path'
import { next } from './next.ts'
import { type Folder, programText, type Workspace } from './workspace.ts'

export interface Case {
  readonly group: string
  readonly name: string
  /** Rejects if it does not work. */
  run(workspace: Workspace, servers: Servers): Promise<Seen>
}

export interface Seen {
  readonly version: string
  /** More about it, in a sentence. */
  readonly note?: string
  /** Whether it is refused with an error that says why, as it should be. */
  readonly isRefused?: boolean
}

export interface Servers {
  /** The address of a server that was started from npm, for the programs of this run. */
  url(major: number): Promise<string>
  /** The address of PgBouncer in front of it. */
  pooler(mode: 'session' | 'transaction' | 'statement'): Promise<{ url: string; version: string }>
}

/** The combination cannot be tried on this machine. */
export class NotRun extends Error {}

const worksOn = async (folder: Folder, command: string, args: readonly string[], env: Record<string, string> = {}) => {
  const said = await folder.run(command, args, env)
  if (!said.includes('works')) throw new Error(said.trim().slice(-200))
}

const onServer = (url: string, schema: string, options: object = {}) => ({
  DATABASE_URL: url,
  SHOP_SCHEMA: schema,
  SHOP_OPTIONS: JSON.stringify(options),
})

const databases: Case[] = [
  ...[15, 16, 17, 18].map(
    (major): Case => ({
      group: 'Databases',
      name: `PostgreSQL ${major}`,
      async run(workspace, servers) {
        const url = await servers.url(major)
        const folder = await workspace.folder(`postgres-${major}`, ['pg'])
        await worksOn(folder, 'node', ['shop.mjs'], onServer(url, 'shop'))
        // Exits with another code if it finds a problem.
        await folder.run('npx', ['rillflow', 'verify', '--url', url, '--minutes', '1'])
        await folder.write('version.mjs', showVersion)
        const version = (await folder.run('node', ['version.mjs'], { DATABASE_URL: url })).trim()
        return { version, note: '`rillflow verify` finds nothing wrong.' }
      },
    }),
  ),
  {
    group: 'Databases',
    name: 'PostgreSQL 14 and older',
    async run(workspace, servers) {
      const folder = await workspace.folder('postgres-14', [])
      await refusedWith(folder, onServer(await servers.url(14), 'shop'), 'server_unsupported')
      return { version: '14', isRefused: true, note: 'Refused at open, with the reason.' }
    },
  },
  {
    group: 'Databases',
    name: 'PGlite (embedded)',
    async run(workspace) {
      const folder = await workspace.folder('pglite', [])
      await worksOn(folder, 'node', ['shop.mjs'])
      return { version: await folder.version('@electric-sql/pglite') }
    },
  },
]

const showVersion = `
  import pg from 'pg'
  const client = new pg.Client(process.env.DATABASE_URL)
  await client.connect()
  console.log((await client.query('show server_version')).rows[0].server_version.split(' ')[0])
  await client.end()`

async function refusedWith(folder: Folder, env: Record<string, string>, code: string): Promise<void> {
  const problem = await folder.run('node', ['shop.mjs'], env).then(
    () => 'it was accepted',
    (error: Error) => (String((error.cause as { stderr?: string }).stderr).includes(code) ? undefined : error.message),
  )
  if (problem !== undefined) throw new Error(problem)
}

const poolers: Case[] = (['session', 'transaction', 'statement'] as const).map(mode => ({
  group: 'Poolers',
  name: `PgBouncer, ${mode} mode`,
  async run(workspace, servers) {
    const { url, version } = await servers.pooler(mode)
    const folder = await workspace.folder(`pgbouncer-${mode}`, [])
    if (mode === 'statement') {
      await refusedWith(folder, onServer(url, 'pooled'), 'pooler_unsupported')
      return { version, isRefused: true, note: 'Refused at open, with the reason.' }
    }
    // The schema is made without the pooler, as a deployment does.
    await worksOn(folder, 'node', ['shop.mjs'], onServer(await servers.url(18), `pooled_${mode}`))
    const options = mode === 'session' ? {} : { prepare: false, listen: false }
    await folder.write(
      'shop.mjs',
      (await programText('shop.mjs')).replaceAll('order-', 'pooled-').replace('read: 2500', 'read: read.length'),
    )
    await worksOn(folder, 'node', ['shop.mjs'], onServer(url, `pooled_${mode}`, { ...options, migrate: false }))
    return { version, ...(mode === 'session' ? {} : { note: 'With `prepare: false` and `listen: false`.' }) }
  },
}))

const runtimes: Case[] = [
  ...['20.19', '22', '24', '26'].map(
    (version): Case => ({
      group: 'Runtimes',
      name: `Node ${version}`,
      async run(workspace, servers) {
        const folder = await workspace.folder(`node-${version}`, [`node@${version}`])
        const node = join(folder.path, 'node_modules/node/bin/node')
        await worksOn(folder, node, ['shop.mjs'])
        await worksOn(folder, node, ['shop.mjs'], onServer(await servers.url(18), `node_${version.replace('.', '_')}`))
        return { version: (await folder.run(node, ['--version'])).trim().slice(1) }
      },
    }),
  ),
  ...[
    { name: 'Bun', tool: 'bun', args: [] },
    { name: 'Deno', tool: 'deno', args: ['run', '--allow-all', '--node-modules-dir=manual'] },
  ].map(
    ({ name, tool, args }): Case => ({
      group: 'Runtimes',
      name,
      async run(workspace, servers) {
        const folder = await workspace.folder(tool, [tool])
        const program = join(folder.path, 'node_modules/.bin', tool)
        const version = await folder.version(tool)
        await worksOn(folder, program, [...args, 'shop.mjs'], onServer(await servers.url(18), tool))
        const embedded = await worksOn(folder, program, [...args, 'shop.mjs']).then(
          () => 'On a server and embedded.',
          (error: Error) => `On a server. Embedded it fails: ${error.message}`,
        )
        return { version, note: embedded }
      },
    }),
  ),
]

const compilers: Case[] = ['5.4', '5.6', '5.9', '7'].map(version => ({
  group: 'TypeScript',
  name: `TypeScript ${version}`,
  async run(workspace) {
    const folder = await workspace.folder(`typescript-${version}`, [`typescript@${version}`, '@types/node@20'])
    await folder.write('shop.ts', await programText('shop.ts.txt'))
    const options = [
      '--strict',
      '--noEmit',
      '--module',
      'nodenext',
      '--target',
      'es2022',
      '--lib',
      'es2023,esnext.disposable',
    ]
    await folder.run('node', [
      'node_modules/typescript/bin/tsc',
      ...options,
      '--types',
      'node',
      '--skipLibCheck',
      'shop.ts',
    ])
    return { version: await folder.version('typescript') }
  },
}))

/** The database drivers stay outside, as programs for servers are bundled. */
const bundlers: Case[] = [
  {
    group: 'Bundlers',
    name: 'esbuild, ES module',
    run: (workspace, servers) =>
      bundled(workspace, servers, 'esbuild', folder => {
        const args = ['shop.mjs', '--bundle', '--platform=node', '--format=esm', '--outfile=out/shop.mjs']
        return folder.run('node_modules/.bin/esbuild', [...args, '--external:pg', '--external:@electric-sql/pglite'])
      }),
  },
  {
    group: 'Bundlers',
    name: 'esbuild, CommonJS',
    run: (workspace, servers) =>
      bundled(workspace, servers, 'esbuild', async folder => {
        // This format has no `await` outside of functions.
        const [, imports, rest] = /(import [\s\S]*?'rillflow'\n)([\s\S]*)/.exec(await programText('shop.mjs'))!
        await folder.write('main.mjs', `${imports}main()\nasync function main() {${rest}}`)
        const args = ['main.mjs', '--bundle', '--platform=node', '--format=cjs', '--outfile=out/shop.cjs']
        await folder.run('node_modules/.bin/esbuild', [...args, '--external:pg', '--external:@electric-sql/pglite'])
        await folder.write('out/shop.mjs', `import './shop.cjs'`)
      }),
  },
  {
    group: 'Bundlers',
    name: 'webpack',
    run: (workspace, servers) =>
      bundled(workspace, servers, 'webpack', async folder => {
        const script = `
          import webpack from 'webpack'
          webpack({
            mode: 'production', target: 'node20', entry: './shop.mjs', experiments: { outputModule: true },
            externals: { pg: 'module pg', '@electric-sql/pglite': 'import @electric-sql/pglite' },
            output: { path: process.cwd() + '/out', filename: 'shop.mjs', module: true, chunkFormat: 'module' },
          }, (error, stats) => { if (error || stats.hasErrors()) { console.error(error ?? stats.toString()); process.exit(1) } })`
        await folder.write('build.mjs', script)
        await folder.run('node', ['build.mjs'])
      }),
  },
  ...['rollup', 'rolldown'].map(
    (tool): Case => ({
      group: 'Bundlers',
      name: tool === 'rollup' ? 'Rollup' : 'Rolldown (Vite)',
      run: (workspace, servers) =>
        bundled(workspace, servers, tool, async folder => {
          const plugins = tool === 'rollup' ? 'nodeResolve(), commonjs(), json()' : ''
          const imports = tool === 'rollup' ? rollupPlugins : ''
          const script = `
            import { ${tool} } from '${tool}'
            ${imports}
            const external = [/^node:/, 'pg', '@electric-sql/pglite']
            const bundle = await ${tool}({ input: 'shop.mjs', external, plugins: [${plugins}]${tool === 'rolldown' ? ", platform: 'node'" : ''} })
            await bundle.write({ dir: 'out', format: 'es', entryFileNames: 'shop.mjs', chunkFileNames: '[name]-[hash].mjs' })`
          await folder.write('build.mjs', script)
          await folder.run('node', ['build.mjs'])
        }),
    }),
  ),
]

const rollupPlugins = `
  import nodeResolve from '@rollup/plugin-node-resolve'
  import commonjs from '@rollup/plugin-commonjs'
  import json from '@rollup/plugin-json'`

let bundles = 0

async function bundled(
  workspace: Workspace,
  servers: Servers,
  tool: string,
  build: (folder: Folder) => Promise<unknown>,
): Promise<Seen> {
  const plugins = tool === 'rollup' ? ['node-resolve', 'commonjs', 'json'].map(name => `@rollup/plugin-${name}`) : []
  const folder = await workspace.folder(`bundler-${tool}-${++bundles}`, [tool, ...plugins])
  await build(folder)
  await worksOn(folder, 'node', ['out/shop.mjs'], onServer(await servers.url(18), `${tool}_${bundles}`))
  await worksOn(folder, 'node', ['out/shop.mjs'])
  return { version: await folder.version(tool), note: 'With `pg` and `@electric-sql/pglite` left outside.' }
}

const testRunners: Case[] = [
  {
    group: 'Test runners',
    name: 'Jest',
    async run(workspace) {
      const folder = await workspace.folder('jest', ['jest'])
      await folder.write('shop.test.js', `test('the shop', async () => { await import('./shop.mjs') }, 120_000)`)
      const flags = ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js']
      await folder.run('node', flags)
      return {
        version: await folder.version('jest'),
        note: 'With `--experimental-vm-modules`, as Jest needs it for ES modules.',
      }
    },
  },
  {
    group: 'Test runners',
    name: 'Vitest',
    async run(workspace) {
      const folder = await workspace.folder('vitest', ['vitest'])
      const test = `import { test } from 'vitest'\ntest('the shop', async () => { await import('./shop.mjs') }, 120_000)`
      await folder.write('shop.test.js', test)
      await folder.run('node_modules/.bin/vitest', ['run'])
      return { version: await folder.version('vitest') }
    },
  },
]

const packageManagers: Case[] = [
  {
    group: 'Package managers',
    name: 'npm',
    async run(workspace) {
      const folder = await workspace.folder('npm', [])
      await worksOn(folder, 'node', ['shop.mjs'])
      return { version: (await folder.run('npm', ['--version'])).trim() }
    },
  },
  ...[
    { name: 'pnpm', package: 'pnpm', script: 'node_modules/pnpm/bin/pnpm.cjs', add: ['add'], version: 'pnpm@10' },
    {
      name: 'Yarn 1',
      package: 'yarn',
      script: 'node_modules/yarn/bin/yarn.js',
      add: ['add', '--silent'],
      version: 'yarn@1.22',
    },
  ].map(
    (manager): Case => ({
      group: 'Package managers',
      name: manager.name,
      async run(workspace) {
        const tool = await workspace.folder(`${manager.package}-itself`, [manager.version], { library: false })
        const install = ['node', join(tool.path, manager.script), ...manager.add]
        const folder = await workspace.folder(manager.package, [], { install })
        await worksOn(folder, 'node', ['shop.mjs'])
        return { version: await tool.version(manager.package) }
      },
    }),
  ),
  {
    group: 'Package managers',
    name: 'Yarn 4, Plug’n’Play',
    async run(workspace) {
      const tool = await workspace.folder('yarn-berry-itself', ['@yarnpkg/cli-dist'], { library: false })
      const yarn = join(tool.path, 'node_modules/@yarnpkg/cli-dist/bin/yarn.js')
      const folder = await workspace.folder('yarn-berry', [], { library: false })
      await folder.write('yarn.lock', '')
      await folder.write('.yarnrc.yml', 'enableTelemetry: false\n')
      await folder.run('node', [yarn, 'add', `rillflow@file:${workspace.tarball}`])
      await worksOn(folder, 'node', [yarn, 'node', 'shop.mjs'])
      return { version: await tool.version('@yarnpkg/cli-dist') }
    },
  },
]

export const cases: readonly Case[] = [
  ...databases,
  ...poolers,
  ...runtimes,
  ...compilers,
  ...bundlers,
  next,
  ...testRunners,
  ...packageManagers,
]
