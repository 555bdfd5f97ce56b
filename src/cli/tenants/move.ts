/** `rillflow tenants move` */
import { type Command, defineCommand } from '../command.ts'
import { count, duration } from '../output/amount.ts'
import { openTenants } from './open.ts'

export const moveCommand: Command = defineCommand({
  description:
    'Writers wait for the last step alone. A move that was interrupted goes on when it is called again; called for the server where the tenant is, it is undone.',
  arguments: [
    { name: 'tenant', summary: 'Its name', names: 'tenant' },
    { name: 'server', summary: 'Where to: a server of the directory' },
  ],
  options: {
    maxPauseMs: {
      kind: 'whole',
      value: 'MS',
      default: 10_000,
      summary: 'The longest that writers may wait; a move that would take longer does not happen',
    },
    keepSource: { kind: 'flag', summary: 'Keep what was copied on the old server, under another name' },
  },
  examples: ['rillflow tenants move acme eu-2'],
  async run({ out, open, arguments: { tenant, server }, options: { maxPauseMs, keepSource }, signal }) {
    const { tenants } = await openTenants({ open })
    const bar = out.progress(`Moving ${tenant}`)
    const moved = await tenants
      .move(
        tenant,
        { server },
        { maxPauseMs, keepSource, signal, onProgress: ({ rows, totalRows }) => bar.update(rows, totalRows, 'row') },
      )
      .finally(() => bar.end())
    out.print(moved, style => {
      if (moved.moved === undefined) return `Tenant ${tenant} is on server ${moved.server}.`
      const { events, rows, pausedMs } = moved.moved
      const told = `${count(events, 'event')} and ${count(rows, 'other row')} copied, writers waited ${duration(pausedMs)}`
      return `${style.colour.green('Moved')} tenant ${tenant} to server ${moved.server}: ${told}.`
    })
  },
})
