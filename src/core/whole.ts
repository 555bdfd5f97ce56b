/** Moved to `options.ts`. */
export { checkWhole, maxPosition } from './options.ts'
