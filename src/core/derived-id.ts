/** Moved to `id.ts`. */
export { derivedId } from './id.ts'
