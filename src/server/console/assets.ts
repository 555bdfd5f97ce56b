/**
 * The files of the browser program, as `scripts/build.js` makes them from `console/`: it puts them in the place of this
 * module. Here, in the sources, there are none.
 */
export interface Assets {
  /** The file of `console/main.tsx`, and its styles. Undefined if the console was not built. */
  readonly main: string | undefined
  readonly styles: readonly string[]
  /** By name: the content type, and the content as base64 of gzip. */
  readonly files: Readonly<Record<string, readonly [type: string, content: string]>>
}

export const assets: Assets = { main: undefined, styles: [], files: {} }
