/** `rillflow schema check` */
import { type Command, defineCommand } from '../command.ts'
import { checkOptions, reportCheck } from './report-check.ts'

export const checkCommand: Command = defineCommand({
  description:
    'Compares tables, indexes, functions and sequences with what the migrations and the configuration make. Exits with 3 if something differs, with 4 if the schema is newer than this version.',
  examples: ['rillflow schema check', 'rillflow schema check --json'],
  options: checkOptions,
  run: reportCheck,
})
