/** Steps with undos, as handlers of the tests have them. */
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import type { UndoRequest } from '../../src/workflows/undo.ts'
import type { ShopMap } from './shop.ts'

export type Step = <T>(
  ctx: HandlerContext<ShopMap>,
  name: string,
  undo: UndoRequest,
  run: () => T | Promise<T>,
) => Promise<T>

export const step: Step = (ctx, name, undo, run) => ctx.step(name, run, { undo })
