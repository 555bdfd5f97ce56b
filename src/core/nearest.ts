/** Moved to `name.ts`. */
export { nearestName } from './name.ts'
