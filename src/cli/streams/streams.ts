/** Commands about streams. */
import type { Group } from '../command.ts'

export const streams: Group = {
  summary: 'The streams that events belong to',
  commands: {
    list: {
      summary: 'Streams by name',
      load: async () => (await import('./list.ts')).listCommand,
    },
    show: {
      summary: 'A stream and its events',
      load: async () => (await import('./show.ts')).showCommand,
    },
    resolve: {
      summary: 'The stream that an alias stands for',
      load: async () => (await import('./resolve.ts')).resolveCommand,
    },
    archive: {
      summary: 'Refuse appends to a stream',
      load: async () => (await import('./archive.ts')).archiveCommand,
    },
    restore: {
      summary: 'Take a stream out of the archive',
      load: async () => (await import('./restore.ts')).restoreCommand,
    },
  },
}
