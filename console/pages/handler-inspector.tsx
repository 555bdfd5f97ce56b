/** One handler: its policy, its open executions and its latest attempts. */
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Command } from '../parts/copy.tsx'
import { ask } from '../parts/dialog.tsx'
import { duration, time } from '../parts/format.ts'
import { Shape } from '../parts/icon.tsx'
import { Button, Facts, toneClass } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { act } from '../shell/act.ts'
import type { Address } from '../shell/where.ts'
import { executionLook, outcomeLook } from './workflow-look.tsx'

type Handler = AnswerOf<'GET /handlers'>['items'][number]

export function HandlerInspector({
  name,
  versions,
  address,
}: {
  name: string
  versions: readonly Handler[]
  address: Address
}) {
  const attempts = useReading('GET /attempts', { query: { handler: name, limit: 30 }, everyMs: 5000 })
  const executions = useReading('GET /executions', { query: { handler: name, limit: 30 }, everyMs: 3000 })
  const newest = versions.at(-1)
  const retire = async (): Promise<void> => {
    const answer = await ask({
      title: `Retire ${name}?`,
      body: 'It is given no more events, in all versions and processes. Open executions still run. It comes back when it is resumed.',
      verb: `Retire ${name}`,
      isDanger: true,
      name,
    })
    if (answer !== undefined)
      await act('POST /handlers/:name/retire', {
        parameters: { name },
        done: `${name} is retired.`,
      })
  }
  return (
    <aside class="inspector" aria-label={`Handler ${name}`}>
      <header>
        <div class="line">
          <span class="title cut">{name}</span>
          <span class="faint">{newest === undefined ? '' : `version ${newest.version}, ${newest.kind}`}</span>
          <span class="push actions">
            <Button kind="bare" small icon="close" label="Close" onClick={() => address.replace({ open: undefined })} />
          </span>
        </div>
      </header>
      {newest !== undefined && (
        <section>
          <h2>Policy</h2>
          <Facts facts={policyFacts(newest)} />
        </section>
      )}
      <section>
        <h2>Open executions</h2>
        <Show of={executions} rows={3}>
          {({ items }) =>
            items.length === 0 ? (
              <p class="dim">None is open.</p>
            ) : (
              <ul class="effects">
                {items.map(each => {
                  const look = executionLook(each.state)
                  return (
                    <li key={each.executionId}>
                      <Shape name={look.shape} tone={toneClass(look.tone)} />
                      <a
                        class="cut"
                        href={pageUrl(`/workflows/${encodeURIComponent(each.correlationId)}`, {
                          open: each.executionId,
                        })}
                      >
                        {look.word}{' '}
                        <span class="faint">{each.dueAt === undefined ? '' : `until ${time(each.dueAt)}`}</span>
                      </a>
                      <span class="mono faint">#{each.eventPosition}</span>
                    </li>
                  )
                })}
              </ul>
            )
          }
        </Show>
      </section>
      <section>
        <h2>
          Latest attempts{' '}
          {(attempts.data?.items.length ?? 0) > 1 && (
            <span class="faint mini light push">
              ran {quantile(attempts.data?.items ?? [], 0.5)} p50, {quantile(attempts.data?.items ?? [], 0.95)} p95
            </span>
          )}
        </h2>
        <Show of={attempts} rows={5}>
          {({ items }) => (
            <ul class="effects attempts">
              {items.map(each => (
                <li key={each.position}>
                  <span class="attempt">
                    <a
                      class="cut"
                      href={pageUrl(`/workflows/${encodeURIComponent(each.correlationId)}`, { open: each.executionId })}
                    >
                      {outcomeLook(each)} <span class="faint cut">{each.error?.message}</span>
                    </a>
                    <span class="mono faint">{each.runningMs === undefined ? '' : duration(each.runningMs)}</span>
                    <span class="mono faint">{time(each.at)}</span>
                  </span>
                </li>
              ))}
            </ul>
          )}
        </Show>
      </section>
      <footer>
        <div class="grow">
          <Command line={`rillflow workflows executions --handler ${name}`} />
        </div>
        <Button
          kind="danger"
          refused={newest?.retiredAt === undefined ? refusedFor('admin') : 'it is retired'}
          onClick={() => void retire()}
        >
          Retire…
        </Button>
      </footer>
    </aside>
  )
}

function policyFacts(handler: Handler): [string, string][] {
  return Object.entries(handler.policy)
    .filter(([, value]) => value !== undefined && value !== null && typeof value !== 'object')
    .map(([name, value]) => [wordsOf(name), /Ms$/.test(name) ? duration(Number(value)) : valueWords(value)])
}

function valueWords(value: unknown): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return String(value).replace(/([a-z])([A-Z])/g, (_, before, after) => `${before} ${after.toLowerCase()}`)
}

/** Of attempts that were run. */
function quantile(attempts: readonly { readonly runningMs?: number | undefined }[], share: number): string {
  const times = attempts.flatMap(({ runningMs }) => runningMs ?? []).sort((a, b) => a - b)
  const found = times[Math.min(times.length - 1, Math.floor(times.length * share))]
  return found === undefined ? '–' : duration(found)
}

function wordsOf(name: string): string {
  const words = name
    .replace(/Ms$/, '')
    .replace(/([A-Z])/g, ' $1')
    .toLowerCase()
  return `${words[0]?.toUpperCase()}${words.slice(1)}`
}
