import { expect, test } from 'vitest'
import { parseLine } from '../../src/cli/arguments.ts'
import { run } from '../../src/cli/commands/run.ts'
import { locationFrom } from '../../src/cli/config.ts'

test('an option that the line does not have is read from the environment, and checked in the same way', () => {
  const env = {
    ...{ RILLFLOW_SCHEMA: 'shop', RILLFLOW_TENANCY: 'schema', RILLFLOW_TENANT: 'acme', RILLFLOW_CONFIG: '' },
    ...{ RILLFLOW_CONCURRENCY: '8', RILLFLOW_NODE: 'west-1', RILLFLOW_HEALTH_BIND: '127.0.0.1:0' },
  }

  const { globals, options } = parseLine(run, ['run'], ['--node', 'west-2'], env)

  expect(locationFrom(globals, env)).toMatchObject({ schema: 'shop', tenancy: 'schema', tenant: undefined })
  expect(locationFrom(globals, env)).toMatchObject({ defaultTenant: 'acme', config: undefined })
  expect(options).toMatchObject({ concurrency: 8, node: 'west-2', healthBind: '127.0.0.1:0' })
  for (const [name, value] of [
    ['RILLFLOW_TENANCY', 'many'],
    ['RILLFLOW_CONCURRENCY', 'few'],
  ] as const)
    expect(() => parseLine(run, ['run'], [], { [name]: value })).toThrow(`${name} must be`)
})
