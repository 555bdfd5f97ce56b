/** Is the schema what the library and the declarations made: version, tables, indexes, functions, sequences. */
import type { Check, DoctorParts } from './doctor.ts'

export function checkSchema({ schema, log }: DoctorParts): Check[] {
  return [
    {
      name: 'schema',
      ok: 'The schema is what its migrations and declarations made.',
      async find() {
        const { problems, newer } = await schema.check()
        const found = problems.map(({ object, problem, fix }) => ({
          level: 'error' as const,
          message: `In schema ${log.schema}, ${object} ${problem}.`,
          mend: `${fix}.`,
        }))
        const told = newer.map(migration => ({
          level: 'warning' as const,
          message: `Schema ${log.schema} has ${migration} of a newer library; its objects were not compared.`,
          mend: 'Update rillflow in this program.',
        }))
        return [...found, ...told]
      },
    },
  ]
}
