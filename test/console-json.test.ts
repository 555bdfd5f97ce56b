import { expect, test } from 'vitest'
import { diffLines } from '../console/json/diff.ts'
import { compact, indented, JsonFault, readJson } from '../console/json/json.ts'
import { type Line, linesOf } from '../console/json/lines.ts'

test('numbers keep the digits they were written with', () => {
  const text = '{"big":9223372036854775808,"fine":0.1000000000000000055511151231257827,"exponent":1E400}'

  expect(compact(readJson(text))).toBe(text)
})

test('a fault names its line and column, and what is missing', () => {
  const faultOf = (text: string): string => {
    try {
      readJson(text)
    } catch (error) {
      if (error instanceof JsonFault) return `${error.line}:${error.column} ${error.message}`
    }
    return 'none'
  }

  expect(faultOf('{\n  "cents": 1250\n  "items": []\n}')).toBe('2:16 a comma or "}" is missing')
  expect(faultOf('{ customer: "Ada" }')).toBe('1:2 this is not JSON')
  expect(faultOf('[1, 2')).toBe('1:6 a comma or "]" is missing')
  expect(faultOf('{"a":1}')).toBe('none')
})

test('an order is laid out with a line for each field, and a short list on one line', () => {
  const order = readJson('{"customer":"Ada","items":["atlas","lamp"],"a b":{"deep":[{"x":1}]}}')

  expect(linesOf(order).map(textOf)).toEqual([
    ...['{', '  customer: "Ada",', '  items: ["atlas", "lamp"],', '  "a b": {', '    deep: [', '      { x: 1 }'],
    ...['    ]', '  }', '}'],
  ])
  expect(indented(readJson('{"items":["atlas"]}'))).toBe('{\n  "items": ["atlas"]\n}')
})

test('a diff shows a changed field twice, and counts it once', () => {
  const before = readJson('{"status":"cleared","cents":1250,"items":{"lamp":{"shelf":null}},"gone":1}')
  const after = readJson('{"status":"shipped","cents":1250,"items":{"lamp":{"shelf":2}},"added":true}')

  const { lines, changes } = diffLines(before, after)

  expect(changes).toBe(4)
  expect(lines.filter(line => line.sign !== undefined).map(line => `${line.sign} ${textOf(line).trim()}`)).toEqual([
    ...['del status: "cleared",', 'add status: "shipped",'],
    ...['del items: { lamp: { shelf: null } },'].slice(1),
    ...['del lamp: { shelf: null }', 'add lamp: { shelf: 2 }', 'add added: true,', 'del gone: 1'],
  ])
})

function textOf({ indent, pieces }: Line): string {
  return '  '.repeat(indent) + pieces.map(({ text }) => text).join('')
}
