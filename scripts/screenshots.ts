/**
 * Takes the pictures of the console for README and docs: the demo shop of `rillflow dev`, in both themes.
 *
 *     npm run screenshots                 writes docs/images/console-*.png
 */
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launchBrowser } from '../test/support/browser.ts'

const folder = 'docs/images'
/** How long the overview is open before the pictures are taken: figures are sampled while a page is watched. */
const openMs = 100_000

const place = mkdtempSync(join(tmpdir(), 'rillflow-screenshots-'))
const shop = spawn(process.execPath, [join(process.cwd(), 'dist/cli/cli.js'), 'dev', '--memory'], {
  cwd: place,
  stdio: ['ignore', 'ignore', 'pipe'],
})
try {
  const url = await addressOf(shop.stderr)
  const browser = await launchBrowser()
  const watching = await browser.newPage({ locale: 'en-GB' })
  await watching.goto(url)
  await watching.waitForTimeout(openMs)
  mkdirSync(folder, { recursive: true })
  const workflow = await newestSettled(url)
  const pages = {
    overview: '/',
    events: '/events',
    workflow: `/workflows/${workflow}`,
    'dead-letters': '/dead-letters',
  }
  for (const theme of ['light', 'dark'] as const) {
    const context = await browser.newContext({
      ...{ viewport: { width: 1440, height: 900 }, colorScheme: theme, locale: 'en-GB', timezoneId: 'UTC' },
      reducedMotion: 'reduce',
    })
    for (const [name, path] of Object.entries(pages)) {
      const page = await context.newPage()
      await page.goto(url + path)
      await page.getByRole('heading', { level: 1 }).first().waitFor()
      await page.waitForTimeout(4_000)
      await page.screenshot({ path: join(folder, `console-${name}-${theme}.png`) })
      await page.close()
    }
    await context.close()
  }
  await browser.close()
} finally {
  shop.kill()
  rmSync(place, { recursive: true, force: true })
}

async function addressOf(output: NodeJS.ReadableStream): Promise<string> {
  let text = ''
  for await (const chunk of output) {
    text += String(chunk)
    const address = /Console: (\S+)/.exec(text)?.[1]
    if (address === undefined) continue
    output.resume()
    return address
  }
  throw new Error(`rillflow dev ended without an address:\n${text}`)
}

/** The id of a workflow that has settled and has a join in it. */
async function newestSettled(url: string): Promise<string> {
  const response = await fetch(`${url}/api/v1/workflows?state=settled&limit=20`)
  const { items } = (await response.json()) as { items: { correlationId: string }[] }
  return items[2]?.correlationId ?? items[0]?.correlationId ?? ''
}
