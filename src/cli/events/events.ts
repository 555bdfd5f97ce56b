/** Commands about events: looking at the log, adding to it, carrying it elsewhere. */
import type { Group } from '../command.ts'

export const events: Group = {
  summary: 'The events of the log',
  commands: {
    tail: {
      summary: 'The latest events, and new ones as they come',
      load: async () => (await import('./tail.ts')).tailCommand,
    },
    show: {
      summary: 'One event with all it carries',
      load: async () => (await import('./show.ts')).showCommand,
    },
    append: {
      summary: 'Append an event to a stream',
      load: async () => (await import('./append.ts')).appendCommand,
    },
    export: {
      summary: 'Write events as NDJSON',
      load: async () => (await import('./export.ts')).exportCommand,
    },
    import: {
      summary: 'Load events from NDJSON',
      load: async () => (await import('./import.ts')).importCommand,
    },
  },
}
