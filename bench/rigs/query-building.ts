/**
 * The time it takes to build one query, up to its text and parameters, without running it. From the sources, because the
 * text is not public.
 */
import { postgresSQLBuilder } from '@event-driven-io/pongo'
import { writeSelect } from '../../src/documents/query/select.ts'
import { internalsOf } from '../../src/documents/query/table-query.ts'
import { and, type Documents, eq } from '../../src/index.ts'
import { percentile, type Sample } from '../harness/rounds.ts'
import { type Customer, cityOf, emailOf } from '../workloads/customers.ts'

/** The median in microseconds. */
export function buildOurs(collection: Documents<Customer>, times: number): Sample {
  return timed(times, n => {
    const query = collection
      .query()
      .where(c => and(eq(c.email, emailOf(n)), eq(c.address.city, cityOf(n))))
      .orderBy(c => c.name)
      .limit(20)
    const { source, state } = internalsOf(query)
    return writeSelect(source, state, { ordered: true }).text
  })
}

/** Without order and limit, which Pongo does not have. */
export function buildPongo(times: number): Sample {
  const builder = postgresSQLBuilder('customers')
  return timed(times, n => builder.find<Customer>({ email: emailOf(n), 'address.city': cityOf(n) } as object))
}

function timed(times: number, build: (n: number) => string): Sample {
  const took: number[] = []
  let length = 0
  for (let n = 0; n < times; n++) {
    const started = process.hrtime.bigint()
    length += build(n).length
    took.push(Number(process.hrtime.bigint() - started) / 1000)
  }
  if (length === 0) throw new Error('nothing was built')
  return { value: percentile(took, 0.5) }
}
