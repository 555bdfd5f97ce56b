/** The expected shape of a schema by its numbers: `expected.ts` is written from one with sequences. */
import { expected } from './expected.ts'
import type { Numbers } from './plpgsql.ts'
import type { SchemaShape } from './shape.ts'

export function expectedWith(numbers: Numbers): SchemaShape {
  return numbers === 'announced' ? expected : withCounters
}

const withCounters: SchemaShape = {
  tables: {
    ...expected.tables,
    counters: {
      columns: { value: 'bigint not null', name: 'text collate "C" not null' },
      indexes: { counters_pkey: 'primary key btree (name)' },
    },
  },
  sequences: {},
  functions: Object.fromEntries(
    Object.entries(expected.functions).map(([name, text]) => [
      name,
      text.replace(' set plan_cache_mode=force_generic_plan', ''),
    ]),
  ),
}
