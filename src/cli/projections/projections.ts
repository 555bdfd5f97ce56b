/** Commands about projections. Those that run something need its code from the configuration; the others only the database. */
import type { Group } from '../command.ts'

export const projections: Group = {
  summary: 'Read models that follow the log',
  commands: {
    list: {
      summary: 'All projections and how far they are',
      load: async () => (await import('./list.ts')).listCommand,
    },
    status: {
      summary: 'One projection in detail',
      load: async () => (await import('./status.ts')).statusCommand,
    },
    metrics: {
      summary: 'Lag and failures as numbers',
      load: async () => (await import('./metrics.ts')).metricsCommand,
    },
    pause: {
      summary: 'Apply nothing more for now',
      load: async () => (await import('./pause.ts')).pauseCommand,
    },
    resume: {
      summary: 'Go on after a pause or a failure',
      load: async () => (await import('./resume.ts')).resumeCommand,
    },
    reset: {
      summary: 'Move a checkpoint',
      load: async () => (await import('./reset.ts')).resetCommand,
    },
    rebuild: {
      summary: 'Build a read model anew from the log',
      load: async () => (await import('./rebuild.ts')).rebuildCommand,
    },
    'run-once': {
      summary: 'Apply one batch',
      load: async () => (await import('./run-once.ts')).runOnceCommand,
    },
    'run-until-idle': {
      summary: 'Apply all there is',
      load: async () => (await import('./run-until-idle.ts')).runUntilIdleCommand,
    },
    run: {
      summary: 'Apply events until Ctrl-C',
      load: async () => (await import('./run.ts')).runCommand,
    },
  },
  aliases: {
    'reset-checkpoint': ['projections', 'reset'],
    'run-loop': ['projections', 'run'],
    'dlq-list': ['dead-letters', 'list'],
    'dlq-requeue': ['dead-letters', 'retry'],
    'dlq-delete': ['dead-letters', 'delete'],
    'cluster-status': ['daemons', 'list'],
    promote: ['daemons', 'promote'],
    demote: ['daemons', 'demote'],
  },
}
