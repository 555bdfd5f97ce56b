/** The whole suite on a server whose schemas draw their numbers from counters. */
import { defineConfig } from 'vitest/config'
import { engineProjects, ON_AN_ENGINE, shared } from './vitest.config.ts'

export default defineConfig({
  test: { ...shared, projects: engineProjects({ folders: ON_AN_ENGINE, engines: ['counter'] }) },
})
