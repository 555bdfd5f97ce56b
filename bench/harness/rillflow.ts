/** The package as users get it: what the build made, not the sources. */
export * from '../../dist/index.js'
