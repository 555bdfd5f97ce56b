/** The errors of backups and restores. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

export const BackupUnsupported: ErrorKind<'backup_unsupported', { place: 'server' | 'memory' }> = defineError(
  'backup_unsupported',
  d =>
    d.place === 'server'
      ? 'store.backup() copies the folder of an embedded store, and this one is on a server. Use pg_dump or the backups of the server, or store.export() for an archive that any engine can import.'
      : 'store.backup() copies the folder of an embedded store, and this one is in memory. Use store.export(), or open it with a folder.',
)
export const BackupExists: ErrorKind<'backup_exists', { output: string }> = defineError(
  'backup_exists',
  d => `There is something at ${d.output} already; a backup never replaces anything. Give a path that is free.`,
)
export const BackupUnreadable: ErrorKind<'backup_unreadable', { input: string; reason: string }> = defineError(
  'backup_unreadable',
  d => `${d.input} is no backup that can be restored here: ${d.reason}. Nothing was written.`,
)
export const BackupDamaged: ErrorKind<'backup_damaged', { input: string; file: string; reason: string }> = defineError(
  'backup_damaged',
  d => `The backup at ${d.input} is damaged: ${d.file} ${d.reason}. Nothing was written; restore from another copy.`,
)
