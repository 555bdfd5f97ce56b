/** A store with tenants, for a command that is about them. */
import type { Invocation, Opened, OpenedTenancy, OpenOptions } from '../command.ts'

export const serverOption = {
  kind: 'text',
  value: 'SERVER',
  summary: 'The server of the directory. Default: the one with the fewest tenants',
} as const

export async function openTenants(
  { open }: Pick<Invocation, 'open'>,
  options: Omit<OpenOptions, 'tenants'> = {},
): Promise<Omit<Opened, 'store' | 'tenancy'> & OpenedTenancy> {
  const { store: _, tenancy, ...opened } = await open({ ...options, tenants: true })
  return { ...opened, ...tenancy! }
}
