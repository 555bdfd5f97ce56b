/** The upcasters of the configuration, put together as the store does it. */
import type { Config } from '../../config.ts'
import { type Upcasters, upcasters } from '../../events/read/upcast.ts'

export function upcastersOf(config: Config | undefined): Upcasters {
  return upcasters(config?.upcasters ?? [])
}
