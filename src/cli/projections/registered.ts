/** The projections whose code the configuration has: without it nothing can be run, and that is said. */
import type { Invocation, Opened, OpenOptions } from '../command.ts'
import { NothingRegistered } from '../usage.ts'

export async function openWithProjections(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  options?: OpenOptions,
): Promise<Opened & { readonly names: readonly string[] }> {
  const opened = await open(options)
  const names = (await opened.store.projections.list()).flatMap(each => (each.isRegistered ? [each.name] : []))
  if (names.length === 0) throw new NothingRegistered({ what: 'projections', path: (await config())?.path })
  return { ...opened, names }
}
