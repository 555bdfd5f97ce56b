/** Sends an event to a workflow that waits for one: the types are those it waits for. */
import { useState } from 'preact/hooks'
import { refusedFor } from '../../api/api.ts'
import { useReading } from '../../api/reading.ts'
import { relative, time } from '../../parts/format.ts'
import { JsonField, parsed } from '../../parts/json-field.tsx'
import { Button } from '../../parts/parts.tsx'
import { act } from '../../shell/act.ts'

interface SignalProps {
  workflow: string
  /** Only the waits of this execution. Default: of all. */
  executionId?: string
  onSent: () => void
}

export function SignalForm({ workflow, executionId, onSent }: SignalProps) {
  const waits = useReading('GET /workflows/:id/waits', { parameters: { id: workflow }, everyMs: 5000 })
  const own = (waits.data?.items ?? []).filter(each => executionId === undefined || each.executionId === executionId)
  const events = own.filter(each => each.type !== undefined)
  const [chosen, setChosen] = useState<string | undefined>(undefined)
  const [data, setData] = useState('{}')
  const wait = events.find(each => each.type === chosen) ?? events[0]
  const value = parsed(data)
  if (wait === undefined)
    return own.length === 0 ? null : (
      <p class="pad dim">
        It waits until {own[0]?.dueAt === undefined ? 'another workflow settles' : time(own[0].dueAt)}.
      </p>
    )
  const type = wait.type ?? ''
  const send = async (): Promise<void> => {
    if (value === undefined) return
    const done = `${type} is sent.`
    await act('POST /workflows/:id/signal', {
      parameters: { id: workflow },
      body: { type, data: value.value },
      done,
      after: onSent,
    })
    waits.reload()
  }
  return (
    <form
      class={executionId === undefined ? 'panel pad stack-2' : 'pad stack-2 inset'}
      aria-label={`Send ${type}`}
      onSubmit={event => {
        event.preventDefault()
        void send()
      }}
    >
      <p>
        <b class="medium">
          {wait.handler} waits for {type}
        </b>
        {wait.dueAt !== undefined && (
          <span class="dim">
            . It gives up {relative(wait.dueAt)}, at {time(wait.dueAt)}.
          </span>
        )}
      </p>
      {events.length > 1 && (
        <div class="field">
          <label for="signal-type">Type</label>
          <select id="signal-type" class="input" value={type} onChange={event => setChosen(event.currentTarget.value)}>
            {[...new Set(events.map(each => each.type))].map(each => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </div>
      )}
      <JsonField label="Data" text={data} onText={setData} rows={4} />
      <div class="actions">
        <Button
          kind="main"
          type="submit"
          refused={value === undefined ? 'the data is not JSON' : refusedFor('operate')}
        >
          Send {type}
        </Button>
      </div>
    </form>
  )
}
