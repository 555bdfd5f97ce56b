/** Commands about daemons. */
import type { Group } from '../command.ts'

export const daemons: Group = {
  summary: 'The daemons that run consumers, in all processes',
  commands: {
    list: {
      summary: 'Who is there, and what they hold',
      load: async () => (await import('./list.ts')).listCommand,
    },
    promote: {
      summary: 'Make a node the one that works',
      load: async () => (await import('./promote.ts')).promoteCommand,
    },
    demote: {
      summary: 'Make a node wait',
      load: async () => (await import('./demote.ts')).demoteCommand,
    },
  },
}
