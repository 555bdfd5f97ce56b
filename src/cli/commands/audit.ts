/**
 * `rillflow audit`: what operators did.
 *
 *     list   the actions of operators, the newest first
 *
 * Commands are recorded under the name that `--actor` or RILLFLOW_ACTOR gives, otherwise under the user and the host.
 */
import { kebabCase } from '../arguments.ts'
import { type Commands, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago } from '../output/amount.ts'
import { paintState } from '../output/state.ts'

const list = listCommand({
  description:
    'An action that stays "running" still runs, or its process ended before it could store the outcome. Entries are kept for 90 days, unless the retention says otherwise.',
  options: {
    by: { kind: 'text', value: 'ACTOR', summary: 'Only actions of this actor' },
    action: {
      kind: 'text',
      value: 'ACTION',
      summary: 'Only this action, such as consumers.pause, or all of a noun, such as consumers',
    },
    target: { kind: 'text', value: 'NAME', summary: 'Only actions on this consumer, handler, stream, …' },
    outcome: {
      kind: 'text',
      value: 'OUTCOME',
      choices: ['running', 'done', 'failed'],
      summary: 'Only actions with this outcome',
    },
    since: {
      kind: 'time',
      value: 'TIME',
      summary: 'Only actions that began after this: a time, or an age such as 15m, 2h, 7d',
    },
    ...pageOptions,
  },
  examples: ['rillflow audit list --since 7d', 'rillflow audit list --action dead-letters --json'],
  empty: 'No action is recorded.',
  list: (store, { by, action, ...filter }) =>
    store.audit.list({ ...filter, actor: by, action: action && actionNamed(action) }),
  columns: ({ now }) => [
    { title: 'WHEN', of: ({ startedAt }) => ago(startedAt, now), paint: (_, colour) => colour.dim },
    { title: 'ACTOR', of: ({ actor }) => actor },
    { title: 'ACTION', of: ({ action }) => kebabCase(action), paint: (_, colour) => colour.cyan },
    { title: 'TARGET', of: ({ target }) => target },
    { title: 'OUTCOME', of: ({ outcome }) => outcome, paint: ({ outcome }, colour) => paintState(outcome, colour) },
    {
      title: 'PARAMETERS',
      of: ({ parameters, error }) => error?.message ?? JSON.stringify(parameters),
      cut: true,
    },
  ],
})

export const audit: Commands = defineVerbs({
  list: ['Show what operators did, the newest first', list],
})

/** `dead-letters.retry-all` as the library has it. */
function actionNamed(words: string): string {
  return words.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())
}
