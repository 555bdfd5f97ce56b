/** Cancels all workflows that match the page, as an operation with its progress. Those that are over stay as they are. */
import { refusedFor, request } from '../api/api.ts'
import { ask } from '../parts/dialog.tsx'
import { timeOf } from '../parts/filter.tsx'
import { plural } from '../parts/format.ts'
import { Button } from '../parts/parts.tsx'
import { act } from '../shell/act.ts'

const cancellable = ['running', 'waiting', 'parked', 'failed']
const pageSize = 500

interface CancelAllProps {
  state: string
  since: string | undefined
  until: string | undefined
  parent: string | undefined
  onBegun: () => void
}

export function CancelAll({ state, since, until, parent, onBegun }: CancelAllProps) {
  const states = state === 'all' ? cancellable : [state]
  const isOver = states.some(each => !cancellable.includes(each))
  const isFiltered = state !== 'all' || [since, until, parent].some(each => each !== undefined)
  const filter = { since: timeOf(since), until: timeOf(until), parent }
  const cancel = async (): Promise<void> => {
    // The server counts: a page of it at most.
    const { data } = await request('GET /workflows', { query: { ...filter, state: states.join(), limit: pageSize } })
    const count = `${data.next === null ? '' : 'more than '}${plural(data.items.length, 'workflow')}`
    const reason = await ask({
      title: `Cancel ${count}?`,
      body: 'What runs is asked to stop, and nothing begins after it. Recorded steps are not undone: cancel one workflow alone to compensate it.',
      verb: `Cancel ${count}`,
      isDanger: true,
      field: { label: 'Reason', hint: 'It is kept with each workflow.', initial: 'cancelled from the console' },
      command: commandOf({ state, since, until, parent }),
    })
    if (reason !== undefined)
      await act('POST /workflows/cancel', {
        body: { ...filter, ...(state !== 'all' && { state: [state] }), reason },
        done: 'The cancellation has begun.',
        after: onBegun,
      })
  }
  const refused = isOver ? 'they are over' : isFiltered ? refusedFor('operate') : 'choose a state or a filter first'
  return (
    <Button kind="danger" refused={refused} onClick={() => void cancel()}>
      Cancel all…
    </Button>
  )
}

function commandOf({ state, ...given }: Record<string, string | undefined> & { state: string }): string {
  const options = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`--${name} ${value}`]))
  return ['rillflow workflows cancel-all', ...(state === 'all' ? [] : [`--state ${state}`]), ...options].join(' ')
}
