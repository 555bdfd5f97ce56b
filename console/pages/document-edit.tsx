/**
 * The edit of a document: the new text left, what changes right. It expects the version that was read; after a conflict,
 * the changes of the other writer are shown next to yours, and yours can be made on top of them.
 */
import { useMemo, useState } from 'preact/hooks'
import { request } from '../api/api.ts'
import { refusalOf } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { diffLines } from '../json/diff.ts'
import { indented, nodeOf } from '../json/json.ts'
import { DiffView } from '../json/view.tsx'
import { plural } from '../parts/format.ts'
import { faultOf } from '../parts/json-field.tsx'
import { later } from '../parts/later.tsx'
import { Button, Panel, State } from '../parts/parts.tsx'
import { say } from '../shell/said.tsx'

const Editor = later(() => import('../json/editor.tsx').then(module => module.JsonEditor))

export type Document = AnswerOf<'GET /collections/:name/:id'>

interface EditProps {
  name: string
  document: Document
  onSaved: () => void
}

export function DocumentEdit({ name, document, onSaved }: EditProps) {
  const before = useMemo(() => nodeOf(document.data), [document])
  const [base, setBase] = useState(document)
  const [text, setText] = useState(() => indented(before))
  const [theirs, setTheirs] = useState<Document | undefined>(undefined)
  const fault = faultOf(text)
  const difference = fault === undefined ? diffLines(nodeOf(base.data), nodeOf(JSON.parse(text))) : undefined
  const save = async (): Promise<void> => {
    try {
      await request('PUT /collections/:name/:id', {
        parameters: { name, id: document.id },
        headers: { 'if-match': String(base.version) },
        body: { data: JSON.parse(text) as unknown },
      })
      say(`${document.id} is saved.`)
      onSaved()
    } catch (error) {
      const refusal = refusalOf(error)
      if (refusal.status !== 409) return say(refusal.message, { isBad: true })
      const { data } = await request('GET /collections/:name/:id', { parameters: { name, id: document.id } })
      setTheirs(data)
    }
  }
  const takeOver = (data: Document): void => {
    setBase(data)
    setTheirs(undefined)
  }
  return (
    <Panel
      title="Edit"
      sub={`version ${base.version} is expected`}
      foot={
        <span class="push">
          <Button
            kind="main"
            refused={fault ?? (difference?.changes === 0 ? 'nothing is changed' : undefined)}
            onClick={() => void save()}
          >
            Save {plural(difference?.changes ?? 0, 'change')}
          </Button>
        </span>
      }
    >
      {theirs !== undefined && (
        <div class="pad stack-2 inset">
          <State
            shape="behind"
            tone="warn"
            word={`Another writer was faster: version ${theirs.version}${theirs.updatedBy === undefined ? '' : `, by ${theirs.updatedBy}`}.`}
          />
          <p class="dim">Theirs, against the version that you have read:</p>
          <DiffView lines={diffLines(nodeOf(base.data), nodeOf(theirs.data)).lines} />
          <div class="actions">
            <Button
              onClick={() => {
                setText(indented(nodeOf(theirs.data)))
                takeOver(theirs)
              }}
            >
              Take theirs
            </Button>
            <Button onClick={() => takeOver(theirs)}>Keep mine, on top of theirs</Button>
          </div>
        </div>
      )}
      <div class="pair">
        <div>
          <Editor text={text} label="Document" onText={setText} />
          {fault !== undefined && <p class="err-text pad">{fault}</p>}
        </div>
        <div>{difference !== undefined && <DiffView lines={difference.lines} />}</div>
      </div>
    </Panel>
  )
}
