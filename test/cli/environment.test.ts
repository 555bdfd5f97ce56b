import { expect, test } from 'vitest'
import { parseLine } from '../../src/cli/arguments.ts'
import { runCommand } from '../../src/cli/commands/run.ts'
import { placeOf } from '../../src/cli/config.ts'

test('what the line does not say is said by the environment, of the same kind and among the same choices', () => {
  const env = {
    ...{ RILLFLOW_SCHEMA: 'shop', RILLFLOW_TENANCY: 'schema', RILLFLOW_TENANT: 'acme', RILLFLOW_CONFIG: '' },
    ...{ RILLFLOW_CONCURRENCY: '8', RILLFLOW_NODE: 'west-1', RILLFLOW_HEALTH_BIND: '127.0.0.1:0' },
  }

  const { globals, options } = parseLine(runCommand, ['run'], ['--node', 'west-2'], env)

  expect(placeOf(globals, env)).toMatchObject({ schema: 'shop', tenancy: 'schema', tenant: undefined })
  expect(placeOf(globals, env)).toMatchObject({ usualTenant: 'acme', config: undefined })
  expect(options).toMatchObject({ concurrency: 8, node: 'west-2', healthBind: '127.0.0.1:0' })
  for (const [name, value] of [
    ['RILLFLOW_TENANCY', 'many'],
    ['RILLFLOW_CONCURRENCY', 'few'],
  ] as const)
    expect(() => parseLine(runCommand, ['run'], [], { [name]: value })).toThrow(`${name} must be`)
})
