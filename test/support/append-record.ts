/**
 * The record of the appends of a process that may be killed: a line in a file before each call and a line after it. What it
 * has written to the file outlives it.
 */
import { openSync, readFileSync, writeSync } from 'node:fs'
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
  for (const line of readFileSync(file, 'utf8').split('\n')) {
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
