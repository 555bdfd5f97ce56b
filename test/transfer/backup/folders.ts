/** Embedded stores in folders of a test, removed with it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { openStore, type Store, type StoreOptions } from '../../../src/store.ts'
import { type ShopMap, shopEvents } from '../../support/shop.ts'

/** Paths inside a folder that is removed when the test is over. */
export async function scratch(): Promise<(name: string) => string> {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-upkeep-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return name => join(folder, name)
}

export async function openIn(folder: string, options: StoreOptions<ShopMap> = {}): Promise<Store<ShopMap>> {
  const store = await openStore<ShopMap>({ events: shopEvents, folder, ...options })
  onTestFinished(() => store.close())
  return store
}
