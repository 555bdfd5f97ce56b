/** Moved to `abort.ts`. */
export { Cutoff } from './abort.ts'
