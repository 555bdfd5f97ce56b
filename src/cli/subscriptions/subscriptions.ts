/** Commands about subscriptions and their groups. None of them needs code. */
import type { Group } from '../command.ts'

export const subscriptions: Group = {
  summary: 'Subscriptions to the log, and their groups',
  commands: {
    create: {
      summary: 'Make a group without running it',
      load: async () => (await import('./create.ts')).createCommand,
    },
    list: {
      summary: 'All subscriptions',
      load: async () => (await import('./list.ts')).listCommand,
    },
    status: {
      summary: 'The default group of a subscription',
      load: async () => (await import('./status.ts')).statusCommand,
    },
    pause: {
      summary: 'Deliver nothing more for now',
      load: async () => (await import('./pause.ts')).pauseCommand,
    },
    resume: {
      summary: 'Deliver again',
      load: async () => (await import('./resume.ts')).resumeCommand,
    },
    reset: {
      summary: 'Move a checkpoint',
      load: async () => (await import('./reset.ts')).resetCommand,
    },
    tail: {
      summary: 'What a group would get next',
      load: async () => (await import('./tail.ts')).tailCommand,
    },
    groups: {
      summary: 'The groups of a subscription',
      load: async () => (await import('./groups.ts')).groupsCommand,
    },
    'group-status': {
      summary: 'One group in detail',
      load: async () => (await import('./group-status.ts')).groupStatusCommand,
    },
    'set-group-max-in-flight': {
      summary: 'Limit what a group may have in hand',
      load: async () => (await import('./set-group-max-in-flight.ts')).setGroupMaxInFlightCommand,
    },
  },
}
