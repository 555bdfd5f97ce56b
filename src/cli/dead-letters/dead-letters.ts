/** Commands about dead letters of all consumers; those of handlers are under `handler:<name>`. */
import type { Group } from '../command.ts'

export const deadLetters: Group = {
  summary: 'Events that were set aside because they failed',
  commands: {
    list: {
      summary: 'Dead letters by consumer',
      load: async () => (await import('./list.ts')).listCommand,
    },
    stats: {
      summary: 'How many there are in each state',
      load: async () => (await import('./stats.ts')).statsCommand,
    },
    show: {
      summary: 'One with its event and its errors',
      load: async () => (await import('./show.ts')).showCommand,
    },
    retry: {
      summary: 'Ask for another try',
      load: async () => (await import('./retry.ts')).retryCommand,
    },
    resolve: {
      summary: 'Close one with a note',
      load: async () => (await import('./resolve.ts')).resolveCommand,
    },
    delete: {
      summary: 'Remove one for good',
      load: async () => (await import('./delete.ts')).deleteCommand,
    },
  },
}
