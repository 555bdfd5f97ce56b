/**
 * The console: the page of the browser program, and its files.
 *
 *     GET {base}/assets/main-AB12.js     a file, which its name makes immutable
 *     GET {base}/…                       the page, for every other path: its links are the paths of the program
 *
 * The files are one module (`assets.ts`), which is imported when the first page is asked for: no path on a disk is needed,
 * bundlers take it along, and `import 'rillflow'` does not load it.
 *
 * The page has no data of the store. It loads one script and its styles, and a block of JSON tells the program its base,
 * its role and its tenant. The policy of its content allows this server and nothing else, without exceptions.
 */
import { gunzipSync } from 'node:zlib'
import type { Identity } from '../access/access.ts'
import type { Assets } from './assets.ts'

/** The facts that the program needs before its first request: the JSON in the element `#boot` of the page. */
export interface Boot {
  /** `''` or `/admin/rillflow`: all addresses of the program begin with it. */
  readonly base: string
  /** Undefined if the sender is not known yet. */
  readonly name: string | undefined
  readonly role: Identity['role'] | undefined
  /** Whether a token can be exchanged for a session. */
  readonly canLogIn: boolean
  readonly hasTenants: boolean
  readonly version: string
}

const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const headers = {
  'content-security-policy': policy,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}

/** The file of this name; undefined if there is none. */
export async function answerAsset(name: string, request: Request): Promise<Response | undefined> {
  const { files } = await loadAssets()
  const file = Object.hasOwn(files, name) ? files[name] : undefined
  if (file === undefined) return undefined
  const [type, content] = file
  const packed = Buffer.from(content, 'base64')
  const takesGzip = /\bgzip\b/.test(request.headers.get('accept-encoding') ?? '')
  return new Response(takesGzip ? packed : gunzipSync(packed), {
    headers: {
      ...headers,
      'content-type': type,
      'cache-control': 'public, max-age=31536000, immutable',
      vary: 'accept-encoding',
      ...(takesGzip ? { 'content-encoding': 'gzip' } : {}),
    },
  })
}

export async function answerPage(boot: Boot): Promise<Response> {
  const { main, styles } = await loadAssets()
  const body = main === undefined ? unbuilt : page(boot, main, styles)
  return new Response(body, {
    status: main === undefined ? 503 : 200,
    headers: { ...headers, 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' },
  })
}

async function loadAssets(): Promise<Assets> {
  return (await import('./assets.ts')).assets
}

const unbuilt =
  '<!doctype html><title>Rillflow</title><p>The console is part of the built package: run "npm run build".\n'

function page(boot: Boot, main: string, styles: readonly string[]): string {
  const at = (name: string): string => escapeHtml(`${boot.base}/assets/${name}`)
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Rillflow</title>
${styles.map(name => `<link rel="stylesheet" href="${at(name)}">\n`).join('')}<script type="application/json" id="boot">${jsonIn(boot)}</script>
<script type="module" src="${at(main)}"></script>
</head>
<body><div id="app"></div></body>
</html>
`
}

/** JSON that cannot end the element it stands in. */
function jsonIn(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    each => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, each => `&#${each.charCodeAt(0)};`)
}
