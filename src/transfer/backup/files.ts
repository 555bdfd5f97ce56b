/** What a backup says about itself: which files it has, what is in them, and how far the log goes. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { canonicalJson } from '../../core/json.ts'
import { pgliteMajor } from '../../database/pglite/folder.ts'
import { BackupDamaged, BackupUnreadable } from './errors.ts'

export interface BackupManifest {
  readonly format: 'rillflow-backup'
  readonly formatVersion: 1
  readonly kind: 'folder'
  /** The major version of PostgreSQL that reads its files. */
  readonly postgres: string
  readonly createdAt: string
  /** The schema of the store that made it; a folder may have others in it, which are part of the backup as well. */
  readonly schema: string
  /** The last position of that store's log, as text: every event up to it is in the backup. */
  readonly position: string
  /** Also the empty ones, without which PostgreSQL does not start. */
  readonly folders: readonly string[]
  readonly files: readonly BackupFile[]
}

export interface BackupFile {
  /** Inside the backup, with `/`. */
  readonly path: string
  readonly bytes: number
  readonly sha256: string
}

const fileName = 'manifest.json'

export async function writeManifest(folder: string, manifest: BackupManifest): Promise<void> {
  const sealed = { ...manifest, sha256: sealOf(manifest) }
  await writeFile(join(folder, fileName), `${JSON.stringify(sealed, undefined, 2)}\n`, { flag: 'wx' })
}

/** Reads it, and refuses what this library did not write, or cannot read. */
export async function readManifest(input: string): Promise<BackupManifest> {
  const refuse = (reason: string, cause?: unknown): never => {
    throw new BackupUnreadable({ input, reason }, cause)
  }
  const text = await readFile(join(input, fileName), 'utf8').catch(error => refuse('it has no manifest.json', error))
  const { sha256, ...manifest } = parse(text, input)
  if (manifest.format !== 'rillflow-backup' || manifest.kind !== 'folder')
    refuse('its manifest is not that of a copied folder')
  if (manifest.formatVersion !== 1) refuse(`its format is version ${String(manifest.formatVersion)}, known is 1`)
  if (sealOf(manifest) !== sha256)
    throw new BackupDamaged({ input, file: fileName, reason: 'does not have its checksum' })
  if (manifest.postgres !== pgliteMajor)
    refuse(`it is of PostgreSQL ${manifest.postgres}, and the embedded one is ${pgliteMajor}`)
  const paths = [...manifest.folders, ...manifest.files.map(file => file.path)]
  const strange = paths.find(path => path.split(/[/\\]/).some(part => part === '..' || part === ''))
  if (strange !== undefined) refuse(`its file "${strange}" would lie outside of it`)
  return manifest
}

/** Holds one file against what the manifest says of it. */
export async function verifyFile(input: string, file: BackupFile): Promise<void> {
  const damaged = (reason: string, cause?: unknown): never => {
    throw new BackupDamaged({ input, file: file.path, reason }, cause)
  }
  const path = join(input, file.path)
  const found = await stat(path).catch(error => damaged('is missing', error))
  if (found.size !== file.bytes) damaged(`has ${found.size} bytes instead of ${file.bytes}`)
  const sha256 = await checksum(path).catch(error => damaged('cannot be read', error))
  if (sha256 !== file.sha256) damaged('does not have its checksum')
}

export async function checksum(path: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}

function parse(text: string, input: string): BackupManifest & { readonly sha256: string } {
  try {
    const manifest = JSON.parse(text) as BackupManifest & { sha256: string }
    if (typeof manifest === 'object' && manifest !== null) return manifest
  } catch (error) {
    throw new BackupDamaged({ input, file: fileName, reason: 'is not JSON' }, error)
  }
  throw new BackupDamaged({ input, file: fileName, reason: 'is not an object' })
}

/** The checksum of the manifest itself, which has those of all files in it. */
function sealOf(manifest: BackupManifest): string {
  return createHash('sha256').update(canonicalJson(manifest)).digest('hex')
}
