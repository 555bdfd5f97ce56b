/** One document: its body, its versions as diffs, and an edit that expects the version it was read at. */

import { useMemo, useState } from 'preact/hooks'
import { useRoute } from 'preact-iso'
import { refusedFor, request } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { type Reading, refusalOf, useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { diffLines } from '../json/diff.ts'
import { indented, nodeOf } from '../json/json.ts'
import { DiffView, JsonView } from '../json/view.tsx'
import { Command } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { plural, time } from '../parts/format.ts'
import { faultOf } from '../parts/json-field.tsx'
import { later } from '../parts/later.tsx'
import { At, Button, Facts, Head, Panel, State } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { act } from '../shell/act.ts'
import { say } from '../shell/said.tsx'
import { useWhere } from '../shell/where.ts'
import { collectionUrl } from './documents.tsx'

const Editor = later(() => import('../json/editor.tsx').then(module => module.JsonEditor))

type Document = AnswerOf<'GET /collections/:name/:id'>

export function DocumentPage() {
  const { name = '', id = '' } = useRoute().params
  useWhere(
    { label: 'Documents', path: '/documents' },
    { label: name, path: `/documents/${encodeURIComponent(name)}` },
    { label: id, isMono: true },
  )
  const parameters = { name, id }
  const document = useReading('GET /collections/:name/:id', { parameters })
  const history = useReading('GET /collections/:name/:id/history', { parameters, query: { limit: 50 } })
  const [isEdited, setEdited] = useState(false)
  if (document.error?.status === 404)
    return (
      <div class="page">
        <Head title="There is no such document" />
        <Empty title={`${name}/${id}`}>
          <p>
            It may be deleted, or have another id.{' '}
            <a class="link" href={collectionUrl(name)}>
              All of {name}
            </a>
          </p>
        </Empty>
      </div>
    )
  return (
    <div class="page">
      <Head
        title={<span class="mono-title">{id}</span>}
        sub={document.data === undefined ? undefined : `version ${document.data.version}`}
      >
        <Button refused={refusedFor('admin')} onClick={() => setEdited(!isEdited)}>
          {isEdited ? 'Leave it' : 'Edit'}
        </Button>
        <Button kind="danger" refused={refusedFor('admin')} onClick={() => void remove(name, id, document)}>
          Delete…
        </Button>
      </Head>
      <div class="side">
        <div class="stack">
          <Show of={document}>
            {found =>
              isEdited ? (
                <Edit
                  key={found.version}
                  name={name}
                  document={found}
                  onSaved={() => {
                    setEdited(false)
                    document.reload()
                    history.reload()
                  }}
                  onConflict={document.reload}
                />
              ) : (
                <Panel title="Document">
                  <div class="pad">
                    <JsonView value={found.data} flat />
                  </div>
                </Panel>
              )
            }
          </Show>
          <History of={history} />
        </div>
        <div class="stack">
          <Panel title="About it">
            <Show of={document}>
              {found => (
                <div class="pad">
                  <Facts
                    facts={[
                      ['Version', String(found.version)],
                      ['Made', <At at={found.createdAt} />],
                      ['Changed', <At at={found.updatedAt} />],
                      ['Changed by', found.updatedBy, 'mono'],
                      found.deletedAt === undefined ? undefined : ['Deleted', <At at={found.deletedAt} />],
                    ]}
                  />
                </div>
              )}
            </Show>
          </Panel>
          <Panel title="In the terminal">
            <div class="pad">
              <Command line={`rillflow documents get ${name} ${id}`} />
            </div>
          </Panel>
          <a class="link" href={pageUrl(`/streams/${encodeURIComponent(id)}`)}>
            The stream of the same name
          </a>
        </div>
      </div>
      <Cost of={[document, history]} />
    </div>
  )
}

async function remove(name: string, id: string, document: Reading<Document>): Promise<void> {
  const answer = await ask({
    title: `Delete ${id}?`,
    body: `Version ${document.data?.version} of it is deleted. If the collection keeps no history, it cannot be brought back.`,
    verb: 'Delete it',
    isDanger: true,
    name: id,
  })
  if (answer !== undefined)
    await act('DELETE /collections/:name/:id', {
      parameters: { name, id },
      headers: { 'if-match': String(document.data?.version) },
      body: { confirm: id },
      done: `${id} is deleted.`,
      after: document.reload,
    })
}

function Edit({
  name,
  document,
  onSaved,
  onConflict,
}: {
  name: string
  document: Document
  onSaved: () => void
  onConflict: () => void
}) {
  const before = useMemo(() => nodeOf(document.data), [document])
  const [text, setText] = useState(() => indented(before))
  const [conflict, setConflict] = useState<string | undefined>(undefined)
  const fault = faultOf(text)
  const difference = fault === undefined ? diffLines(before, nodeOf(JSON.parse(text))) : undefined
  const save = async (): Promise<void> => {
    try {
      await request('PUT /collections/:name/:id', {
        parameters: { name, id: document.id },
        headers: { 'if-match': String(document.version) },
        body: { data: JSON.parse(text) as unknown },
      })
      say(`${document.id} is saved.`)
      onSaved()
    } catch (error) {
      const refusal = refusalOf(error)
      if (refusal.status === 409) setConflict(refusal.message)
      else say(refusal.message, { isBad: true })
    }
  }
  return (
    <Panel
      title="Edit"
      sub={`version ${document.version} is expected`}
      foot={
        <>
          {conflict !== undefined && (
            <>
              <State shape="behind" tone="warn" word="Another writer was faster." />{' '}
              <Button small onClick={onConflict}>
                Read it again
              </Button>
            </>
          )}
          <span class="push">
            <Button
              kind="main"
              refused={fault ?? (difference?.changes === 0 ? 'nothing is changed' : undefined)}
              onClick={() => void save()}
            >
              Save {plural(difference?.changes ?? 0, 'change')}
            </Button>
          </span>
        </>
      }
    >
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

function History({ of }: { of: Reading<AnswerOf<'GET /collections/:name/:id/history'>> }) {
  const versions = of.data?.items ?? []
  if (of.error !== undefined || versions.length < 2) return null
  return (
    <Panel title="History" sub={plural(versions.length, 'version')}>
      <ul class="rows">
        {[...versions].reverse().map((each, index, list) => {
          const before = list[index + 1]
          return (
            <li key={each.version}>
              <details>
                <summary class="row">
                  Version {each.version} <span class="faint">{time(each.updatedAt)}</span>
                </summary>
                <DiffView lines={diffLines(nodeOf(before?.data ?? null), nodeOf(each.data)).lines} />
              </details>
            </li>
          )
        })}
      </ul>
    </Panel>
  )
}
