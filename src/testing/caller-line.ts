/** The line of a test, or of the code under test, that has called the library: `/shop/charge.ts:12`. */
import { fileURLToPath } from 'node:url'

/** The folders of the library: a source map may lead from the built files to their sources. */
const library = foldersAt(import.meta.url)

/** None in a bundle in the format of CommonJS, which has no address. */
function foldersAt(url: string | undefined): string[] {
  if (url === undefined) return []
  return ['../', '../../src/', '../../dist/'].map(folder => fileURLToPath(new URL(folder, url)))
}

/**
 * Of the calls that are outside of the library, the one that the library itself has made: a handler, or the code of one of
 * its steps, whatever it has called in turn.
 */
export function callerLine(): string | undefined {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 50
  const lines = (new Error().stack ?? '').split('\n').slice(1)
  Error.stackTraceLimit = limit
  const places = lines.flatMap(line => /\(?((?:file:\/\/)?[^\s()]+):(\d+):\d+\)?$/.exec(line)?.slice(1, 3) ?? [])
  let caller: string | undefined
  for (let at = 0; at < places.length; at += 2) {
    const path = places[at]!.startsWith('file:') ? fileURLToPath(places[at]!) : places[at]!
    const isOurs = library.some(folder => path.startsWith(folder))
    if (isOurs && caller !== undefined) return caller
    if (!isOurs && !path.startsWith('node:') && !path.includes('/node_modules/')) caller = `${path}:${places[at + 1]}`
  }
  return caller
}
