/** Files that are made from the code and kept beside it: compared, or with RILLFLOW_UPDATE=1 written anew. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { expect } from 'vitest'

const isUpdating = process.env.RILLFLOW_UPDATE === '1'

export function expectFile(path: string, text: string, madeBy: string = 'test/schema'): void {
  if (isUpdating) {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  const hint = `${path} is not what the code makes: run RILLFLOW_UPDATE=1 npx vitest run ${madeBy}`
  expect(readFileSync(path, 'utf8'), hint).toBe(text)
}

/** Nested data as the formatter would lay it out. */
export function printData(value: unknown, indent = ''): string {
  if (typeof value === 'string') return printText(value)
  const entries = Object.entries(value as object)
  if (entries.length === 0) return '{}'
  const lines = entries.map(([key, each]) => {
    const line = `${indent}  ${key}: ${printData(each, `${indent}  `)},\n`
    const isTooLong = typeof each === 'string' && line.length > 121
    return isTooLong ? `${indent}  ${key}:\n${indent}    ${printData(each)},\n` : line
  })
  return `{\n${lines.join('')}${indent}}`
}

/** In the quotes that leave less to be escaped. */
function printText(text: string): string {
  const count = (mark: string): number => text.split(mark).length - 1
  return count("'") > count('"') ? JSON.stringify(text) : `'${text.replaceAll("'", "\\'")}'`
}
