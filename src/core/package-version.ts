import { readFileSync } from 'node:fs'

/** From the sources, and from the chunks of the built package; from its entry. */
const places = ['../../package.json', '../package.json']

/** The version of this package; 'unknown' where a bundler has left its description behind. */
export function packageVersion(): string {
  for (const place of places)
    try {
      const { name, version } = JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8'))
      if (name === 'rillflow') return version
    } catch {}
  return 'unknown'
}
