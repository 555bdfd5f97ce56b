/** Tells when code in a folder changes, or in one below it. */
import { type Dirent, type FSWatcher, readdirSync, watch } from 'node:fs'
import { join, relative } from 'node:path'

export interface CodeWatch {
  /** The file, from here; once, a moment after its first change, as an editor or a checkout writes more than once. */
  readonly changed: Promise<string>
  /** Why some of it is not watched. */
  readonly failure: Error | undefined
  close(): void
}

const momentMs = 100
/** A watch is a resource of the system. Whoever has more folders than that has those that are nearest watched. */
const maxFolders = 500

export function watchCode(folder: string): CodeWatch {
  const watchers: FSWatcher[] = []
  let timer: NodeJS.Timeout | undefined
  let failure: Error | undefined
  const changed = new Promise<string>(resolve => {
    try {
      for (const each of foldersOf(folder)) {
        const watcher = watch(each, (_, name) => {
          if (name !== null && isCode(name)) timer ??= setTimeout(resolve, momentMs, relative('', join(each, name)))
        })
        // A folder that is removed; its files were told of.
        watcher.on('error', () => watcher.close())
        watchers.push(watcher)
      }
    } catch (error) {
      failure = error as Error
    }
  })
  return {
    changed,
    failure,
    close() {
      clearTimeout(timer)
      for (const each of watchers) each.close()
    },
  }
}

function isCode(name: string): boolean {
  return !name.startsWith('.') && /\.([cm]?[jt]s|json)$/.test(name)
}

/** The nearest first; not what is installed, built or hidden, as the store's own is. */
function foldersOf(folder: string): string[] {
  const found = [folder]
  for (const each of found) {
    if (found.length >= maxFolders) break
    for (const entry of entriesOf(each))
      if (entry.isDirectory() && !/^(\.|node_modules$|dist$)/.test(entry.name)) found.push(join(each, entry.name))
  }
  return found.slice(0, maxFolders)
}

/** None of a folder that is gone by now, or is not ours to read. */
function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}
