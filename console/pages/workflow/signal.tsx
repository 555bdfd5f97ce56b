/** Sends an event to a workflow that waits for one. */
import { useState } from 'preact/hooks'
import { refusedFor } from '../../api/api.ts'
import { JsonField, parsed } from '../../parts/json-field.tsx'
import { Button } from '../../parts/parts.tsx'
import { act } from '../../shell/act.ts'
import type { Line } from './replay.ts'

export function SignalForm({
  workflow,
  lines,
  onSent,
  isInset = false,
}: {
  workflow: string
  lines: readonly Line[]
  onSent: () => void
  isInset?: boolean
}) {
  const waits = [
    ...new Set(
      lines.filter(line => line.kind === 'suspended' && line.outcome !== undefined).map(line => line.outcome ?? ''),
    ),
  ]
  const [type, setType] = useState('')
  const [data, setData] = useState('{}')
  const value = parsed(data)
  const send = async (): Promise<void> => {
    if (value === undefined) return
    await act('POST /workflows/:id/signal', {
      parameters: { id: workflow },
      body: { type, data: value.value },
      done: `${type} is sent.`,
      after: onSent,
    })
  }
  return (
    <form
      class={isInset ? 'pad stack-2 inset' : 'panel pad stack-2'}
      onSubmit={event => {
        event.preventDefault()
        void send()
      }}
    >
      <h2>Send it an event</h2>
      <p class="dim">
        It waits{waits.length > 0 && waits[0] !== 'event' ? ` (${waits.join(', ')})` : ''}, and continues with an event
        of the type that it waits for.
      </p>
      <div class="field">
        <label for="signal-type">Type</label>
        <input
          id="signal-type"
          class="input mono"
          value={type}
          onInput={event => setType(event.currentTarget.value)}
          placeholder="StockCounted"
        />
      </div>
      <JsonField label="Data" text={data} onText={setData} rows={4} />
      <div class="actions">
        <Button
          kind="main"
          type="submit"
          refused={
            type === '' ? 'a type is missing' : value === undefined ? 'the data is not JSON' : refusedFor('operate')
          }
        >
          Send {type === '' ? 'it' : type}
        </Button>
      </div>
    </form>
  )
}
