import { readFileSync } from 'node:fs'

/** The version of this package; 'unknown' where a bundler has left its description behind. */
export function packageVersion(): string {
  try {
    return JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version
  } catch {
    return 'unknown'
  }
}
