/** Commands about the schema. They open the store without touching the schema first, so that they can tell how it is. */
import type { Group } from '../command.ts'

export const schema: Group = {
  summary: 'What the database holds for the store',
  commands: {
    plan: {
      summary: 'What a sync would do',
      load: async () => (await import('./plan.ts')).planCommand,
    },
    sync: {
      summary: 'Bring the schema up to date',
      load: async () => (await import('./sync.ts')).syncCommand,
    },
    check: {
      summary: 'Look for what is not as it should be',
      load: async () => (await import('./check.ts')).checkCommand,
    },
    down: {
      summary: 'Drop the schema and everything in it',
      load: async () => (await import('./down.ts')).downCommand,
    },
  },
}
