/** A retry with other data than the event has: the stored event stays as it is. */

import { useMemo, useState } from 'preact/hooks'
import { refusedFor } from '../api/api.ts'
import { diffLines } from '../json/diff.ts'
import { indented, JsonFault, nodeOf, readJson } from '../json/json.ts'
import { DiffView } from '../json/view.tsx'
import { plural } from '../parts/format.ts'
import { later } from '../parts/later.tsx'
import { Button, Panel, State } from '../parts/parts.tsx'
import { act } from '../shell/act.ts'
import { type Details, ownerOf } from './dead-letter-owner.ts'

const Editor = later(() => import('../json/editor.tsx').then(module => module.JsonEditor))

export function EditAndRetry({ details, onChange }: { details: Details; onChange: () => void }) {
  const before = useMemo(() => nodeOf(details.event?.data), [details.event])
  const [text, setText] = useState(() => indented(details.edited === undefined ? before : nodeOf(details.edited.data)))
  const [isOpen, setOpen] = useState(false)
  const edited = useMemo(() => read(text), [text])
  const difference = typeof edited === 'string' ? undefined : diffLines(before, edited)
  const owner = ownerOf(details)
  const send = async (): Promise<void> => {
    if (typeof edited === 'string') return
    await act('POST /dead-letters/:owner/:event/retry', {
      parameters: { owner, event: details.eventId },
      body: { data: JSON.parse(text) as unknown },
      done: ({ isRunning }) =>
        isRunning
          ? 'A retry with your data is requested.'
          : `A retry is requested; no runner has the code of ${owner} now.`,
      after: onChange,
    })
  }
  if (!isOpen)
    return (
      <div class="actions">
        <Button onClick={() => setOpen(true)} refused={refusedFor('operate')}>
          Edit and retry
        </Button>
        <span class="faint">the stored event stays as it is; the handler sees your version</span>
      </div>
    )
  const changes = difference?.changes ?? 0
  return (
    <Panel
      title="Edit and retry"
      sub="the stored event stays as it is; the handler sees your version"
      foot={
        <>
          {details.edited !== undefined && <span>The last retry had edited data, too.</span>}
          <span class="push">
            <Button
              kind="main"
              refused={
                typeof edited === 'string'
                  ? 'it is not JSON'
                  : changes === 0
                    ? 'nothing is changed'
                    : refusedFor('operate')
              }
              onClick={() => void send()}
            >
              Retry with {plural(changes, 'change')}
            </Button>
          </span>
        </>
      }
    >
      <div class="pair">
        <div>
          <div class="cap">
            <span>Data for this retry</span>
            <span class="push">
              {typeof edited === 'string' ? (
                <State shape="failed" tone="bad" word={edited} />
              ) : (
                <State shape="done" tone="good" word="is JSON" />
              )}
            </span>
          </div>
          <Editor text={text} label="Data for this retry" onText={setText} />
        </div>
        <div>
          <div class="cap">
            <span>What changes</span>
            <span class="push faint">{plural(changes, 'field')}</span>
          </div>
          {difference !== undefined && <DiffView lines={difference.lines} />}
        </div>
      </div>
    </Panel>
  )
}

/** The value, or the fault in words. */
function read(text: string): ReturnType<typeof readJson> | string {
  try {
    return readJson(text)
  } catch (error) {
    return error instanceof JsonFault ? `line ${error.line}: ${error.message}` : String(error)
  }
}
