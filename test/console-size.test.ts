import { gunzipSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { buildConsole } from '../scripts/console.js'

const { main, styles, files } = await buildConsole(process.cwd())
const names = Object.keys(files)

test('the first load of the console is at most 60 kB, and all of it at most 300 kB', () => {
  const first = [...styles, ...closure([main!, one('overview')])]

  expect(Math.round(sum(first) / 1000)).toBeLessThanOrEqual(60)
  expect(Math.round(sum(names) / 1000)).toBeLessThanOrEqual(300)
})

test('neither the editor nor the charts are part of the first load', () => {
  const first = closure([main!, one('overview')])

  expect(first).not.toContain(one('editor'))
  expect(first).not.toContain(one('uPlot'))
})

/** The file that was made of a module. */
function one(module: string): string {
  return names.find(name => name.startsWith(`${module}-`) || name.startsWith(`${module}.`))!
}

/** These files, and those that they import before they run. */
function closure(entries: readonly string[]): string[] {
  const found = new Set<string>()
  const follow = (name: string): void => {
    if (found.has(name)) return
    found.add(name)
    for (const [, target] of textOf(name).matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)) follow(target!)
  }
  for (const entry of entries) follow(entry)
  return [...found]
}

function textOf(name: string): string {
  return gunzip(files[name]![1])
}

function sum(list: readonly string[]): number {
  return list.reduce((total, name) => total + Buffer.from(files[name]![1], 'base64').length, 0)
}

function gunzip(content: string): string {
  return gunzipSync(Buffer.from(content, 'base64')).toString()
}
