/**
 * A browser for tests, from npm alone. `@sparticuz/chromium` carries Chromium, its libraries and fonts in its package; only
 * its files are used, unpacked once into `node_modules/.cache`: the package's own code would unpack to a folder that all
 * users of a machine share, and run whatever lies there already.
 *
 *     RILLFLOW_TEST_BROWSER=/path        wins
 *     Linux x64 with glibc               the packed Chromium
 *     elsewhere                          Chrome, Edge or Chromium that is installed
 */
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { chmod, mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { brotliDecompressSync, createBrotliDecompress } from 'node:zlib'
import { type Browser, chromium, type LaunchOptions } from 'playwright-core'

const root = fileURLToPath(new URL('../..', import.meta.url))
const packed = join(root, 'node_modules/@sparticuz/chromium/bin')
const cache = join(root, 'node_modules/.cache/rillflow-chromium-147')

/** How the browser is started here; undefined if this machine has none. */
export async function findBrowser(): Promise<LaunchOptions | undefined> {
  const given = process.env.RILLFLOW_TEST_BROWSER
  if (given !== undefined && given !== '') return { executablePath: given }
  if (isPackedHere()) return unpacked()
  const installed = ['/usr/bin/chromium', '/usr/bin/google-chrome', ...installedElsewhere()].find(path =>
    existsSync(path),
  )
  return installed === undefined ? undefined : { executablePath: installed }
}

export const noBrowser =
  'The browser tests were not run: there is no browser here. Install Chrome, or set RILLFLOW_TEST_BROWSER to the path of one.'

export async function launchBrowser(): Promise<Browser> {
  const found = await findBrowser()
  if (found === undefined) throw new Error(noBrowser)
  const asRoot = process.getuid?.() === 0 ? ['--no-sandbox'] : []
  return chromium.launch({ ...found, headless: true, args: ['--disable-gpu', '--disable-dev-shm-usage', ...asRoot] })
}

function isPackedHere(): boolean {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } } | undefined
  const isGlibc = report?.header?.glibcVersionRuntime !== undefined
  return process.platform === 'linux' && process.arch === 'x64' && isGlibc && existsSync(join(packed, 'chromium.br'))
}

function installedElsewhere(): string[] {
  const programs = [process.env.PROGRAMFILES, process.env['PROGRAMFILES(X86)']].filter(folder => folder !== undefined)
  return [
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    '/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge',
    ...programs.flatMap(folder => [
      join(folder, 'Google/Chrome/Application/chrome.exe'),
      join(folder, 'Microsoft/Edge/Application/msedge.exe'),
    ]),
  ]
}

async function unpacked(): Promise<LaunchOptions> {
  if (!existsSync(cache)) await unpack()
  return {
    executablePath: join(cache, 'chromium'),
    env: {
      PATH: process.env.PATH ?? '',
      HOME: cache,
      LD_LIBRARY_PATH: join(cache, 'lib'),
      FONTCONFIG_FILE: join(cache, 'fonts.conf'),
    },
  }
}

/** Into a folder of its own, which then gets its name: of processes that unpack at the same time the first one wins. */
async function unpack(): Promise<void> {
  mkdirSync(join(cache, '..'), { recursive: true })
  const part = await mkdtemp(`${cache}.part-`)
  await pipeline(
    createReadStream(join(packed, 'chromium.br')),
    createBrotliDecompress(),
    createWriteStream(join(part, 'chromium')),
  )
  await chmod(join(part, 'chromium'), 0o755)
  untar(brotliDecompressSync(readFileSync(join(packed, 'al2023.tar.br'))), part)
  untar(brotliDecompressSync(readFileSync(join(packed, 'fonts.tar.br'))), part)
  writeFileSync(
    join(part, 'fonts.conf'),
    `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>${cache}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>${cache}/font-cache</cachedir></fontconfig>`,
  )
  try {
    renameSync(part, cache)
  } catch (error) {
    if (!existsSync(cache)) throw error
    rmSync(part, { recursive: true })
  }
}

/** Files and links of a plain tar archive. */
function untar(archive: Buffer, folder: string): void {
  for (let at = 0; at + 512 <= archive.length; ) {
    const text = (from: number, length: number): string =>
      archive.toString('utf8', at + from, at + from + length).replace(/\0.*$/s, '')
    const name = text(0, 100)
    if (name === '') return
    const size = Number.parseInt(text(124, 12), 8) || 0
    const path = join(folder, name)
    if (archive[at + 156] === 53) mkdirSync(path, { recursive: true })
    else {
      mkdirSync(join(path, '..'), { recursive: true })
      writeFileSync(path, archive.subarray(at + 512, at + 512 + size))
    }
    at += 512 + Math.ceil(size / 512) * 512
  }
}
