/** The chaos tests, the models and the hostile strings for as long as it takes to trust them: `npm run test:chaos`. */
import { defineConfig } from 'vitest/config'
import { engineProjects, shared } from './vitest.config.ts'

const HOUR_MS = 60 * 60_000

export default defineConfig({
  test: {
    ...shared,
    projects: engineProjects({
      folders: ['chaos', 'model', 'hostile'],
      env: { RILLFLOW_CHAOS: 'long' },
      testTimeout: HOUR_MS,
    }),
  },
})
