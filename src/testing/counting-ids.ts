import type { Ids } from '../core/id.ts'

/** Ids that are the same in every run: valid UUIDs that count up from 1. */
export function countingIds(): Ids {
  let count = 0
  return {
    next: () => `00000000-0000-7000-8000-${(++count).toString(16).padStart(12, '0')}`,
  }
}
