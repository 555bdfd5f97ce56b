/** One dead letter: its error left, its event right, its attempts, and a retry with edited data. */
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import { JsonView } from '../json/view.tsx'
import { Command } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { plural, time } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { Badge, Button, Panel, State, type StateLook } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { act } from '../shell/act.ts'
import type { Address } from '../shell/where.ts'
import { type DeadLetter, type Details, ownerOf } from './dead-letter-owner.ts'
import { EditAndRetry } from './edit-and-retry.tsx'
import { ErrorView } from './error-view.tsx'

const looks: Record<DeadLetter['state'], StateLook> = {
  open: { shape: 'failed', tone: 'bad', word: 'Open' },
  retrying: { shape: 'retrying', tone: 'warn', word: 'Retrying' },
  parked: { shape: 'parked', tone: 'warn', word: 'Parked' },
  replayed: { shape: 'done', tone: 'good', word: 'Replayed' },
  resolved: { shape: 'none', tone: 'rest', word: 'Resolved' },
}

interface ViewProps {
  dead: DeadLetter
  group: readonly DeadLetter[]
  message: string
  fingerprint: string | undefined
  address: Address
  onChange: () => void
}

export function DeadLetterView({ dead, group, fingerprint, address, onChange }: ViewProps) {
  const owner = ownerOf(dead)
  const parameters = { owner, event: dead.eventId }
  const details = useReading('GET /dead-letters/:owner/:event', { parameters, everyMs: 3000 })
  const now = details.data ?? dead
  const changed = (): void => {
    details.reload()
    onChange()
  }
  return (
    <section class="letter" aria-label="Dead letter">
      <a class="crumb-back" href={address.with({ open: undefined, group: undefined })}>
        <Icon name="left" />
        All groups
      </a>
      <div class="head">
        <h1>
          {owner} <span class="dim light">on {dead.type}</span>
        </h1>
        <Badge {...looks[now.state]} />
        <span class="sub">
          {group.indexOf(dead) + 1} of {group.length}
        </span>
        <Actions dead={dead} state={now.state} group={group} fingerprint={fingerprint} onChange={changed} />
      </div>
      <Show of={details}>{found => <Body details={found} address={address} onChange={changed} />}</Show>
      <Cost of={[details]} />
    </section>
  )
}

function Actions({
  dead,
  state,
  group,
  fingerprint,
  onChange,
}: {
  dead: DeadLetter
  state: DeadLetter['state']
  group: readonly DeadLetter[]
  fingerprint: string | undefined
  onChange: () => void
}) {
  const owner = ownerOf(dead)
  const parameters = { owner, event: dead.eventId }
  const refused = state === 'open' ? refusedFor('operate') : `it is ${state}`
  const retry = (): Promise<unknown> =>
    act('POST /dead-letters/:owner/:event/retry', {
      parameters,
      done: ({ isRunning }) =>
        isRunning
          ? 'A retry is requested.'
          : `A retry is requested, and no runner has the code of ${owner}: it waits for one.`,
      after: onChange,
    })
  const retryAll = async (): Promise<void> => {
    const answer = await ask({
      title: `Retry ${plural(group.length, 'dead letter')} of ${owner}?`,
      body: `${plural(group.length, 'open dead letter')} with this error run again, at most 50 a second. Those that fail again come back here.`,
      verb: `Retry ${plural(group.length, 'dead letter')}`,
      command: `rillflow dead-letters retry ${owner} --all`,
    })
    if (answer !== undefined)
      await act('POST /dead-letters/retry', {
        body: { of: owner, ...(fingerprint !== undefined && { fingerprint }) },
        done: ({ requested }) => `${plural(requested, 'retry', 'retries')} requested.`,
        after: onChange,
      })
  }
  const resolve = async (): Promise<void> => {
    const note = await ask({
      title: 'Resolve it without a retry?',
      body: `${owner} will never see this event. The log keeps it.`,
      verb: 'Resolve it',
      field: { label: 'Why', hint: 'The next person reads this note.' },
      command: `rillflow dead-letters resolve ${owner} ${dead.eventId} --note …`,
    })
    if (note !== undefined)
      await act('POST /dead-letters/:owner/:event/resolve', {
        parameters,
        body: { note },
        done: 'It is resolved.',
        after: onChange,
      })
  }
  return (
    <div class="head-actions dock">
      <Button refused={refused} onClick={() => void resolve()}>
        Resolve…
      </Button>
      <Button icon="retry" refused={refused} onClick={() => void retry()}>
        Retry
      </Button>
      {group.length > 1 && (
        <Button refused={refused} onClick={() => void retryAll()}>
          Retry all {group.length}…
        </Button>
      )}
    </div>
  )
}

function Body({ details, address, onChange }: { details: Details; address: Address; onChange: () => void }) {
  const { lastError, event, errors, history } = details
  const owner = ownerOf(details)
  return (
    <>
      <section class="panel pair" aria-label="Error and event">
        <div>
          <div class="cap">
            <b class="strong tone-bad">Error</b>
            <span class="push faint">
              attempt {details.attempts}, {time(details.lastFailedAt)}
            </span>
          </div>
          <div class="pad">
            <ErrorView error={lastError} />
          </div>
        </div>
        <div>
          <div class="cap">
            <b class="strong">Event</b>
            <a class="mono link" href={pageUrl('/events', { open: details.eventId })}>
              #{details.position}
            </a>
            <a
              class="push mono faint cut"
              href={pageUrl(`/streams/${encodeURIComponent(details.stream)}`, { version: details.version })}
            >
              {details.stream}@{details.version}
            </a>
          </div>
          <div class="pad">
            {event === undefined ? <p class="dim">The log no longer has it.</p> : <JsonView value={event.data} flat />}
          </div>
        </div>
      </section>
      {details.handler !== undefined && event !== undefined && details.state === 'open' && (
        <EditAndRetry details={details} onChange={onChange} />
      )}
      <div class="side-2">
        <Panel title="Attempts" sub={`${details.attempts} in all`}>
          <table>
            <tbody>
              {[...errors].reverse().map((error, index) => (
                <tr key={error.at}>
                  <td class="w-40">{errors.length - index}</td>
                  <td class="mono dim w-112">{time(error.at)}</td>
                  <td title={error.message}>
                    <State
                      shape="failed"
                      tone="bad"
                      word={
                        index === errors.length - 1
                          ? 'First seen'
                          : error.message === errors[0]?.message
                            ? 'Same error'
                            : error.message
                      }
                    />
                  </td>
                </tr>
              ))}
              {history.map(change => (
                <tr key={`${change.at}${change.to}`}>
                  <td class="w-40" />
                  <td class="mono dim">{time(change.at)}</td>
                  <td title={change.note}>
                    {change.from} → {change.to} <span class="faint">{change.note}</span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Panel>
        <Panel title="The same in the terminal">
          <div class="pad stack-2">
            <Command line={`rillflow dead-letters retry ${owner} ${details.eventId}`} />
            {details.correlationId !== undefined && (
              <a
                class="link"
                href={pageUrl(`/workflows/${encodeURIComponent(details.correlationId)}`, { open: details.executionId })}
              >
                Open its workflow
              </a>
            )}
            <a class="link" href={address.with({})}>
              Link to this dead letter
            </a>
          </div>
        </Panel>
      </div>
    </>
  )
}
