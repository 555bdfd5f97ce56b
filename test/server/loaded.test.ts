import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'

/** The files and packages that an entry of the built package loads at once, without those that it imports later. */
function loadedBy(entry: string): { files: Set<string>; packages: Set<string> } {
  const files = new Set<string>()
  const packages = new Set<string>()
  const follow = (path: string): void => {
    if (files.has(path)) return
    files.add(path)
    for (const [, target] of readFileSync(path, 'utf8').matchAll(/^(?:import|export)\b[^;'"]*?["']([^'"]+)["'];?$/gm))
      if (target!.startsWith('.')) follow(join(dirname(path), target!))
      else packages.add(target!)
  }
  follow(entry)
  return { files, packages }
}

test('importing the package loads nothing of the server, of its router or of the console', () => {
  const { files, packages } = loadedBy('dist/index.js')

  const text = [...files].map(path => readFileSync(path, 'utf8')).join('\n')
  expect(files.size).toBeGreaterThan(1)
  expect([...packages].filter(name => name.includes('hono'))).toEqual([])
  expect(text).not.toContain('content-security-policy')
  expect(text).not.toContain('src/server/api/routes/')
  expect(text).toContain('src/server/server.ts')
})
