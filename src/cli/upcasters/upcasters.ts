/** Commands about upcasters. They look at the configuration alone; no store is opened. */
import type { Group } from '../command.ts'

export const upcasters: Group = {
  summary: 'How old events are read in their new shape',
  commands: {
    list: {
      summary: 'All steps of the configuration',
      load: async () => (await import('./list.ts')).listCommand,
    },
    path: {
      summary: 'The shapes that an event goes through',
      load: async () => (await import('./path.ts')).pathCommand,
    },
  },
}
