/** `rillflow health schema` */
import { type Command, defineCommand } from '../command.ts'
import { checkOptions, reportCheck } from '../schema/report-check.ts'

export const schemaCommand: Command = defineCommand({
  description:
    'Exits with 0 if it is, with 3 if something is missing or was changed, with 4 if it is newer than this version.',
  examples: ['rillflow health schema', 'rillflow health schema --all-tenants --json || alert'],
  options: checkOptions,
  run: reportCheck,
})
