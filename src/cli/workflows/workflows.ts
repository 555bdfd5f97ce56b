/** Commands about workflows. `run` needs handlers from the configuration; the others only the database. */
import type { Group } from '../command.ts'

export const workflows: Group = {
  summary: 'What handlers do because of events',
  commands: {
    list: {
      summary: 'Workflows, newest first',
      load: async () => (await import('./list.ts')).listCommand,
    },
    show: {
      summary: 'Where a workflow stands',
      load: async () => (await import('./show.ts')).showCommand,
    },
    tree: {
      summary: 'What caused what',
      load: async () => (await import('./tree.ts')).treeCommand,
    },
    watch: {
      summary: 'What happens, as it happens',
      load: async () => (await import('./watch.ts')).watchCommand,
    },
    publish: {
      summary: 'Publish an event that begins a workflow',
      load: async () => (await import('./publish.ts')).publishCommand,
    },
    signal: {
      summary: 'Publish an event into a workflow',
      load: async () => (await import('./signal.ts')).signalCommand,
    },
    cancel: {
      summary: 'End a workflow',
      load: async () => (await import('./cancel.ts')).cancelCommand,
    },
    retry: {
      summary: 'Try again what failed in a workflow',
      load: async () => (await import('./retry.ts')).retryCommand,
    },
    schedules: {
      summary: 'What runs when it is time',
      load: async () => (await import('./schedules.ts')).schedulesCommand,
    },
    workers: {
      summary: 'The workers that are alive',
      load: async () => (await import('./workers.ts')).workersCommand,
    },
    run: {
      summary: 'Run handlers until Ctrl-C',
      load: async () => (await import('./run.ts')).runCommand,
    },
  },
}
