/** The errors of backups and restores. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

export const BackupUnsupported: ErrorKind<'backup_unsupported', { place: 'server' | 'memory' }> = defineError(
  'backup_unsupported',
  d =>
    d.place === 'server'
      ? 'store.backup() copies the folder of an embedded store, and this store is on a server. Use pg_dump or the backups of the server, or store.export(), which any engine can import.'
      : 'store.backup() copies the folder of an embedded store, and this store is in memory. Use store.export(), or open the store with a folder.',
)
export const BackupExists: ErrorKind<'backup_exists', { output: string }> = defineError(
  'backup_exists',
  d => `${d.output} exists already, and a backup never replaces anything. Give another output, or remove it first.`,
)
export const BackupUnreadable: ErrorKind<'backup_unreadable', { input: string; reason: string }> = defineError(
  'backup_unreadable',
  d => `${d.input} is not a backup that can be restored here: ${d.reason}. Nothing was written. Check the path.`,
)
export const BackupDamaged: ErrorKind<'backup_damaged', { input: string; file: string; reason: string }> = defineError(
  'backup_damaged',
  d => `The backup ${d.input} is damaged: ${d.file} ${d.reason}. Nothing was written. Restore another copy of it.`,
)
