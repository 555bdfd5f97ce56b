/** Commands about documents. A collection is taken as the configuration declares it; one it does not know is read as it is. */
import type { Group } from '../command.ts'

export const documents: Group = {
  summary: 'The documents of collections',
  commands: {
    get: {
      summary: 'One document',
      load: async () => (await import('./get.ts')).getCommand,
    },
    put: {
      summary: 'Make or replace a document',
      load: async () => (await import('./put.ts')).putCommand,
    },
    query: {
      summary: 'Documents that meet a condition',
      load: async () => (await import('./query.ts')).queryCommand,
    },
    'soft-delete': {
      summary: 'Hide a document',
      load: async () => (await import('./soft-delete.ts')).softDeleteCommand,
    },
    restore: {
      summary: 'Show a hidden document again',
      load: async () => (await import('./restore.ts')).restoreCommand,
    },
    'index-advisor': {
      summary: 'The index that would serve a query',
      load: async () => (await import('./index-advisor.ts')).indexAdvisorCommand,
    },
    explain: {
      summary: 'The plan of a query',
      load: async () => (await import('./explain.ts')).explainCommand,
    },
  },
}
