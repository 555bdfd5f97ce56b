/** The package as users get it: the build, not the sources. */
export * from '../../dist/index.js'
export { compileQuery } from '../../dist/query.js'
