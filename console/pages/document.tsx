/** One document: its body now or as it was, its versions as differences, and an edit that expects the version it was read at. */
import { useState } from 'preact/hooks'
import { useRoute } from 'preact-iso'
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { type Reading, useReading } from '../api/reading.ts'
import { JsonView } from '../json/view.tsx'
import { Command } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { timeOf } from '../parts/filter.tsx'
import { At, Button, Facts, Head, Panel } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { act } from '../shell/act.ts'
import { say } from '../shell/said.tsx'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import { type Document, DocumentEdit } from './document-edit.tsx'
import { DocumentHistory } from './document-history.tsx'
import { collectionUrl } from './documents.tsx'

export function DocumentPage() {
  const { name = '', id = '' } = useRoute().params
  useWhere(
    { label: 'Documents', path: '/documents' },
    { label: name, path: `/documents/${encodeURIComponent(name)}` },
    { label: id, isMono: true },
  )
  const address = useAddress()
  const { version, at } = address.query
  const isPast = version !== undefined || at !== undefined
  const parameters = { name, id }
  const document = useReading('GET /collections/:name/:id', { parameters })
  const past = useReading('GET /collections/:name/:id', { parameters, query: { version, at }, when: isPast })
  const history = useReading('GET /collections/:name/:id/history', { parameters, query: { limit: 50 } })
  const [isEdited, setEdited] = useState(false)
  const reload = (): void => {
    document.reload()
    history.reload()
  }
  if (document.error?.status === 404) return <Missing name={name} id={id} />
  const shown = isPast ? past : document
  return (
    <div class="page">
      <Head
        title={<span class="mono-title">{id}</span>}
        badge={document.data?.deletedAt === undefined ? undefined : { shape: 'none', tone: 'rest', word: 'Deleted' }}
        sub={document.data === undefined ? undefined : `version ${document.data.version}`}
      >
        <DocumentActions
          name={name}
          document={document}
          isEdited={isEdited}
          onEdit={() => setEdited(!isEdited)}
          address={address}
          onChange={reload}
        />
      </Head>
      {isPast && (
        <div class="notice">
          <p class="grow">
            As it was {version === undefined ? <At at={at} /> : `at version ${version}`}. It may have changed since.
          </p>
          <a class="btn btn-small" href={address.with({ version: undefined, at: undefined })}>
            To the present
          </a>
        </div>
      )}
      <div class="side">
        <div class="stack">
          <Show of={shown}>
            {found =>
              isEdited && !isPast ? (
                <DocumentEdit
                  name={name}
                  document={found}
                  onSaved={() => {
                    setEdited(false)
                    reload()
                  }}
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
          <DocumentHistory
            of={history}
            address={address}
            onRevert={old => void revert(name, document.data, old, reload)}
          />
        </div>
        <div class="stack">
          <Panel title="About it">
            <Show of={shown}>
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

function Missing({ name, id }: { name: string; id: string }) {
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
}

interface ActionsProps {
  name: string
  document: Reading<Document>
  isEdited: boolean
  onEdit: () => void
  address: Address
  onChange: () => void
}

function DocumentActions({ name, document: { data: document }, isEdited, onEdit, address, onChange }: ActionsProps) {
  if (document === undefined) return null
  const { id, version, deletedAt } = document
  const parameters = { name, id }
  const headers = { 'if-match': String(version) }
  const hide = (): Promise<unknown> =>
    act('DELETE /collections/:name/:id', {
      parameters,
      query: { soft: 1 },
      headers,
      done: `${id} is hidden.`,
      after: onChange,
    })
  const restore = (): Promise<unknown> =>
    act('POST /collections/:name/:id/restore', { parameters, headers, done: `${id} is shown again.`, after: onChange })
  const remove = async (): Promise<void> => {
    const answer = await ask({
      title: `Delete ${id} for good?`,
      body: `Version ${version} of it is deleted. If the collection keeps no history, it cannot be brought back; hiding it can be undone.`,
      verb: 'Delete it',
      isDanger: true,
      name: id,
      ...(deletedAt === undefined && { instead: { label: 'Hide it instead', run: () => void hide() } }),
    })
    if (answer !== undefined)
      await act('DELETE /collections/:name/:id', { parameters, headers, done: `${id} is deleted.`, after: onChange })
  }
  const goTo = async (): Promise<void> => {
    const given = await ask({
      title: `${id} at which time?`,
      body: 'Needs a collection that keeps a history.',
      verb: 'Show it',
      field: { label: 'Time', hint: 'As 2026-11-19 02:23, or as an age: 10m, 2h, 3d.' },
    })
    if (given === undefined) return
    const at = timeOf(given)
    if (at === undefined) say(`${given} is not a time.`, { isBad: true })
    else address.push({ at, version: undefined })
  }
  return (
    <>
      <Button kind="bare" onClick={() => void goTo()}>
        As of a time…
      </Button>
      <Button refused={deletedAt === undefined ? refusedFor('admin') : 'restore it first'} onClick={onEdit}>
        {isEdited ? 'Leave it' : 'Edit'}
      </Button>
      {deletedAt === undefined ? (
        <Button refused={refusedFor('admin')} onClick={() => void hide()}>
          Hide
        </Button>
      ) : (
        <Button refused={refusedFor('admin')} onClick={() => void restore()}>
          Restore
        </Button>
      )}
      <Button kind="danger" refused={refusedFor('admin')} onClick={() => void remove()}>
        Delete…
      </Button>
    </>
  )
}

/** The old body becomes a new version: the history keeps all of them. */
async function revert(
  name: string,
  now: Document | undefined,
  old: { readonly version: number; readonly data: unknown },
  after: () => void,
): Promise<void> {
  if (now === undefined) return
  const answer = await ask({
    title: `Bring back version ${old.version} of ${now.id}?`,
    body: `Its body becomes version ${now.version + 1}. Version ${now.version} stays in the history.`,
    verb: `Bring back version ${old.version}`,
  })
  if (answer !== undefined)
    await act('PUT /collections/:name/:id', {
      parameters: { name, id: now.id },
      headers: { 'if-match': String(now.version) },
      body: { data: old.data },
      done: `${now.id} is as it was at version ${old.version}.`,
      after,
    })
}
