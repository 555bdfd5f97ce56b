/**
 * The record of the appends of a process that may be killed: a line in a file before each call and a line after it. What it
 * has written to the file outlives it.
 */
import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import type { AppendCall, StreamRead } from '../../src/verify/append-history.ts'
import type { RecordedAppends } from '../../src/verify/record-appends.ts'

/** For `recordAppends`. */
export function writeRecord(file: string): (line: object) => void {
  const output = openSync(file, 'a')
  return line => void writeSync(output, `${JSON.stringify(line)}\n`)
}

/** The record of a process, which may have been killed at any time: a call without an answer has none. */
export function readRecord(file: string): RecordedAppends {
  const calls = new Map<string, AppendCall>()
  const reads: StreamRead[] = []
  for (const line of linesOf(file)) {
    // The last line may be cut off.
    if (!line.endsWith('}')) continue
    const entry = JSON.parse(line) as AppendCall | StreamRead
    const known = calls.get(entry.name)
    if (known !== undefined) Object.assign(known, entry)
    else if ('eventIds' in entry) reads.push(entry)
    else calls.set(entry.name, entry)
  }
  return { calls: [...calls.values()], reads }
}

/** Piece by piece: a long history has more characters than a string can have. */
function* linesOf(file: string): Generator<string> {
  const input = openSync(file, 'r')
  const piece = Buffer.alloc(1 << 20)
  let rest = ''
  try {
    for (let bytes = readSync(input, piece); bytes > 0; bytes = readSync(input, piece)) {
      // All names are ASCII, so no character is cut in two.
      const lines = (rest + piece.toString('latin1', 0, bytes)).split('\n')
      rest = lines.pop()!
      yield* lines
    }
    yield rest
  } finally {
    closeSync(input)
  }
}
