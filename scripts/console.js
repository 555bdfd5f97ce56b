/**
 * Builds the browser program: `console/main.tsx` and `console/console.css`, with everything they import, into files whose
 * names have a digest of their content. The package carries them as one module, packed by gzip and written as base64, so no
 * path on a disk is needed and bundlers take them along.
 */
import { existsSync } from 'node:fs'
import { basename, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

const types = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  woff2: 'font/woff2',
}

/** The files by name, with the names of those that the page loads. */
export async function buildConsole(root) {
  const entryPoints = ['console/main.tsx', 'console/console.css'].filter(path => existsSync(join(root, path)))
  if (entryPoints.length === 0) return { main: undefined, styles: [], files: {} }
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints,
    outdir: 'console-assets',
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    assetNames: '[name]-[hash]',
    bundle: true,
    splitting: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    define: { 'process.env.NODE_ENV': '"production"' },
    loader: { '.woff2': 'file', '.svg': 'file' },
    metafile: true,
    write: false,
    logLevel: 'warning',
  })
  const files = {}
  for (const { path, contents } of outputFiles) {
    const name = basename(path)
    files[name] = [types[name.split('.').at(-1)], gzipSync(contents, { level: 9 }).toString('base64')]
  }
  const styles = []
  let main
  for (const [path, { entryPoint, cssBundle }] of Object.entries(metafile.outputs)) {
    if (entryPoint === 'console/console.css') styles.push(basename(path))
    if (entryPoint !== 'console/main.tsx' || !path.endsWith('.js')) continue
    main = basename(path)
    if (cssBundle !== undefined) styles.push(basename(cssBundle))
  }
  return { main, styles, files }
}

/** Puts the files in the place of the module that stands for them in the sources. */
export function consoleAssets(root) {
  return {
    name: 'console-assets',
    setup(bundler) {
      bundler.onLoad({ filter: /src[\\/]server[\\/]console[\\/]assets\.ts$/ }, async () => ({
        contents: `export const assets = ${JSON.stringify(await buildConsole(root))}`,
        loader: 'js',
      }))
    },
  }
}
