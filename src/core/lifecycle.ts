/** Moved to `abort.ts`. */
export * from './abort.ts'
