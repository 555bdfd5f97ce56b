/** A matter that needs a person, as a row: its shape, its words, and the page where it is fixed. */
import type { Json, Need } from '../../src/server/api/contract.ts'
import type { Attempt } from '../../src/workflows/insight/activity.ts'
import { relative } from '../parts/format.ts'
import type { ShapeName } from '../parts/icon.tsx'

export type NeedNow = Json<Need>

export interface NeedLook {
  readonly shape: ShapeName
  readonly tone: 'bad' | 'warn'
  readonly title: string
  readonly detail: string
  readonly href: string
}

const shapes: Record<NeedNow['kind'], ShapeName> = {
  deadLetters: 'failed',
  consumerStopped: 'parked',
  consumerBehind: 'behind',
  consumerPaused: 'paused',
  notRunning: 'behind',
  heldBack: 'behind',
}

const details: Record<NeedNow['kind'], string> = {
  deadLetters: 'Look at the error, mend it, then retry.',
  consumerStopped: 'It waits for an operator.',
  consumerBehind: 'It runs, and it is late.',
  consumerPaused: 'It stays where it is until it is resumed.',
  notRunning: 'Start a runner that has its code.',
  heldBack: 'An open transaction has appended and is not committed.',
}

/** With the newest failure of the same owner, if it is among those that are known. */
export function needLook(need: NeedNow, failures: readonly Json<Attempt>[]): NeedLook {
  const newest = need.kind === 'deadLetters' ? failures.find(each => each.handler === need.name) : undefined
  return {
    shape: shapes[need.kind],
    tone: need.level === 'error' ? 'bad' : 'warn',
    title: need.message.replace(/"([^"]*)"/g, '$1').replace(/\.$/, ''),
    detail: newest?.error === undefined ? details[need.kind] : `${newest.error.message}, newest ${relative(newest.at)}`,
    href: hrefOf(need),
  }
}

function hrefOf({ kind, name }: NeedNow): string {
  if (kind === 'deadLetters')
    return name === undefined ? '/dead-letters' : `/dead-letters?of=${encodeURIComponent(name)}`
  if (kind === 'heldBack') return '/health'
  if (kind === 'consumerStopped') return '/handlers'
  return name === undefined ? '/projections' : `/projections/${encodeURIComponent(name)}`
}
