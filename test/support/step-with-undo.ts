/** A step with an undo, as the handlers of the tests call it. */
import type { AsJson } from '../../src/core/as-json.ts'
import type { UndoRequest } from '../../src/workflows/cancel/undo.ts'
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import type { ShopMap } from './shop.ts'

export type StepWithUndo = <T>(
  ctx: HandlerContext<ShopMap>,
  name: string,
  undo: UndoRequest,
  run: () => T | Promise<T>,
) => Promise<AsJson<T>>

export const stepWithUndo: StepWithUndo = (ctx, name, undo, run) => ctx.step(name, run, { undo })
