/** Commands about snapshots, of the aggregates that the configuration names as `snapshotters`. */
import type { Group } from '../command.ts'

export const snapshots: Group = {
  summary: 'Snapshots of aggregates',
  commands: {
    'compact-once': {
      summary: 'Write the snapshots of one batch',
      load: async () => (await import('./compact-once.ts')).compactOnceCommand,
    },
    'run-until-idle': {
      summary: 'Write all snapshots that are due',
      load: async () => (await import('./run-until-idle.ts')).runUntilIdleCommand,
    },
    metrics: {
      summary: 'How far streams are ahead of their snapshots',
      load: async () => (await import('./metrics.ts')).metricsCommand,
    },
  },
}
