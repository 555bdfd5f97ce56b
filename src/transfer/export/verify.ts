/** Whether a folder is an archive that can be imported here, and whole: all of it is read, nothing is written. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { throwIfAborted } from '../../core/lifecycle.ts'
import { library } from '../../parts.ts'
import { checksum, migrationName } from '../../schema/migration.ts'
import { ArchiveDamaged, ArchiveForeign, ArchiveNewer } from './errors.ts'
import { type ArchivedFile, digestOf, formatName, formatVersion, type Manifest, manifestFile } from './manifest.ts'

export interface VerifyOptions {
  readonly signal?: AbortSignal | undefined
}

/** Gives what the archive says of itself. */
export async function verifyArchive(input: string, options: VerifyOptions = {}): Promise<Manifest> {
  const manifest = await readManifest(input)
  for (const { file } of manifest.tables) if (file !== null) await verifyFile(input, file, options.signal)
  return manifest
}

async function readManifest(input: string): Promise<Manifest> {
  const path = resolve(input, manifestFile)
  const damaged = (reason: string, cause?: unknown): Error =>
    new ArchiveDamaged({ input, file: manifestFile, reason }, cause)
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw damaged('cannot be read', error)
    throw new ArchiveForeign({ input, reason: `it has no ${manifestFile}` }, error)
  })
  let parsed: (Manifest & { digest: string }) | null
  try {
    parsed = JSON.parse(text)
  } catch (error) {
    throw damaged('is not JSON', error)
  }
  if (parsed?.format !== formatName)
    throw new ArchiveForeign({ input, reason: `its ${manifestFile} is not that of a ${formatName}` })
  // Before the digest: a newer format may have another one.
  if (parsed.version > formatVersion)
    throw new ArchiveNewer({ input, what: 'format', found: parsed.version, known: formatVersion })
  const { digest, ...manifest } = parsed
  if (digest !== digestOf(manifest)) throw damaged('is not what was written')
  refuseMigrations(input, manifest)
  return manifest
}

function refuseMigrations(input: string, manifest: Manifest): void {
  const found = Math.max(...manifest.migrations.map(each => each.id))
  const known = Math.max(...library.migrations.map(each => each.id))
  if (found > known) throw new ArchiveNewer({ input, what: 'migration', found, known })
  const changed = manifest.migrations.find(
    each => !library.migrations.some(ours => ours.id === each.id && checksum(ours) === each.checksum),
  )
  if (changed === undefined) return
  const reason = `its ${migrationName(changed)} is another one than that of this library`
  throw new ArchiveForeign({ input, reason })
}

async function verifyFile(input: string, file: ArchivedFile, signal: AbortSignal | undefined): Promise<void> {
  const check = checkingFile(input, file)
  for await (const chunk of readArchived(input, file)) {
    throwIfAborted(signal)
    check.add(chunk)
  }
  check.end()
}

/** The bytes of a file of the archive. */
export async function* readArchived(input: string, file: ArchivedFile): AsyncGenerator<Buffer, void, undefined> {
  const damaged = (reason: string, cause?: unknown): Error =>
    new ArchiveDamaged({ input, file: file.name, reason }, cause)
  if (basename(file.name) !== file.name) throw damaged('is not a name inside of the archive')
  try {
    yield* createReadStream(join(resolve(input), file.name), { highWaterMark: 256 * 1024 })
  } catch (error) {
    throw damaged((error as NodeJS.ErrnoException).code === 'ENOENT' ? 'is missing' : 'cannot be read', error)
  }
}

/** Holds what is read of a file against what the manifest says of it. */
export function checkingFile(input: string, file: ArchivedFile): { add(chunk: Buffer): void; end(): void } {
  const hash = createHash('sha256')
  let bytes = 0
  let rows = 0
  return {
    add(chunk) {
      hash.update(chunk)
      bytes += chunk.length
      for (let at = chunk.indexOf(lineBreak); at >= 0; at = chunk.indexOf(lineBreak, at + 1)) rows++
    },
    end() {
      const reason =
        bytes !== file.bytes
          ? `has ${bytes} bytes instead of ${file.bytes}`
          : rows !== file.rows
            ? `has ${rows} rows instead of ${file.rows}`
            : hash.digest('hex') !== file.sha256
              ? 'has another content than was written'
              : undefined
      if (reason !== undefined) throw new ArchiveDamaged({ input, file: file.name, reason })
    },
  }
}

export const lineBreak = 10
