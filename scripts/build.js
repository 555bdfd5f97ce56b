/**
 * Builds the package: one file for each entry with their common code in `chunks/`, and the declarations that the entries use.
 *
 * Node loads 400 small files in three times the time it takes for these, and every process pays it: `import 'rillflow'` took four
 * times as long as `import 'pg'`, now about as long. Source maps have names and lines but no contents: a stack trace names the
 * source, and the package does not contain the sources a second time. The files of the console are one module of it: see
 * `console.js`.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { consoleAssets } from './console.js'

const root = fileURLToPath(new URL('..', import.meta.url))
const { exports, bin } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
/** `index`, `cli/cli` and so on. */
const entries = [...Object.values(exports), ...Object.values(bin)]
  .map(path => /^(?:\.\/)?dist\/(.*)\.js$/.exec(path)?.[1])
  .filter(name => name !== undefined)

rmSync(join(root, 'dist'), { recursive: true, force: true })
execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json'], {
  cwd: root,
  stdio: 'inherit',
})
removeUnusedDeclarations()
await build({
  absWorkingDir: root,
  entryPoints: entries.map(name => `src/${name}.ts`),
  outbase: 'src',
  outdir: 'dist',
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  packages: 'external',
  sourcemap: true,
  sourcesContent: false,
  logLevel: 'warning',
  plugins: [consoleAssets(root)],
})

/** The compiler writes one for each source. Those that no entry leads to are of no use to a user. */
function removeUnusedDeclarations() {
  const used = new Set()
  const follow = path => {
    if (used.has(path)) return
    used.add(path)
    for (const [, target] of readFileSync(path, 'utf8').matchAll(/(?:from|import|import\() ?['"](\.[^'"]+)['"]/g))
      follow(join(dirname(path), target.replace(/\.[jt]s$/, '.d.ts')))
  }
  for (const name of entries) follow(join(root, 'dist', `${name}.d.ts`))
  for (const { name, parentPath } of readdirSync(join(root, 'dist'), { recursive: true, withFileTypes: true })) {
    const path = join(parentPath, name)
    if (path.endsWith('.d.ts') && !used.has(path)) rmSync(path)
  }
  removeEmptyFolders(join(root, 'dist'))
}

function removeEmptyFolders(folder) {
  for (const each of readdirSync(folder, { withFileTypes: true }))
    if (each.isDirectory()) removeEmptyFolders(join(folder, each.name))
  if (readdirSync(folder).length === 0) rmSync(folder, { recursive: true })
}
