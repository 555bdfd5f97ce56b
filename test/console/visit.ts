/** A visit of a page: what the browser complained about, and what it asked other origins for. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Browser, Page } from 'playwright-core'
import { expect } from 'vitest'
import { launchBrowser } from '../support/browser.ts'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** Reached only by what hangs: a page takes seconds on a busy machine. */
const patienceMs = 120_000

let launched: Promise<Browser> | undefined

/** One browser for the tests of a file. */
function browser(): Promise<Browser> {
  launched ??= launchBrowser()
  return launched
}

export async function closeBrowser(): Promise<void> {
  const open = launched
  launched = undefined
  await (await open)?.close()
}

export interface Visit extends AsyncDisposable {
  readonly page: Page
  readonly complaints: string[]
}

export interface VisitOptions {
  readonly theme?: 'light' | 'dark'
  readonly width?: number
}

/** Opens a page in a context of its own, and waits until its title is there. */
export async function visit(url: string, { theme = 'light', width = 1440 }: VisitOptions = {}): Promise<Visit> {
  const context = await (await browser()).newContext({
    ...{ viewport: { width, height: width < 500 ? 844 : 900 }, locale: 'en-GB', timezoneId: 'UTC' },
    ...{ colorScheme: theme, reducedMotion: 'reduce' as const },
  })
  const page = await context.newPage()
  page.setDefaultTimeout(patienceMs)
  const complaints: string[] = []
  const { origin } = new URL(url)
  page.on('pageerror', error => complaints.push(`error: ${error.message}`))
  page.on('console', message => {
    if (message.type() === 'error' || message.type() === 'warning')
      complaints.push(`${message.type()}: ${message.text()}`)
  })
  page.on('request', request => {
    if (!request.url().startsWith(origin) && !request.url().startsWith('data:'))
      complaints.push(`asked ${request.url()}`)
  })
  await page.goto(url)
  return {
    page,
    complaints,
    [Symbol.asyncDispose]: () => context.close(),
  }
}

interface Axe {
  run(options?: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>
}

/** The violations that axe finds, one line each; of these rules, or of all. */
export async function violations(page: Page, rules?: readonly string[]): Promise<string[]> {
  // The policy of the page refuses inline scripts, so it is evaluated by the debugger.
  if ((await page.evaluate('typeof axe')) === 'undefined') await page.evaluate(axe)
  return page.evaluate(async only => {
    const options = only === undefined ? {} : { runOnly: only }
    const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run(options)
    return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 160)}`))
  }, rules)
}

export function expectQuiet({ complaints }: Visit): void {
  expect(complaints).toEqual([])
}
