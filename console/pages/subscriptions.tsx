/** Subscriptions: their groups, and the partitions of each with owner and lag. */
import { useMemo } from 'preact/hooks'
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { quantity, shortId } from '../parts/format.ts'
import { Button, Head, State } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { act } from '../shell/act.ts'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import { type Consumer, consumerLook, lagText, PauseButton, resetConsumer } from './consumer-look.tsx'
import { ErrorView } from './error-view.tsx'
import { RunningOperations } from './operation-lines.tsx'

type Group = AnswerOf<'GET /subscriptions/:name'>['items'][number]

export function SubscriptionsPage() {
  useWhere({ label: 'Subscriptions' })
  const address = useAddress()
  const consumers = useReading('GET /consumers', { query: { kind: 'subscription', limit: 500 }, everyMs: 3000 })
  const { open, group = '' } = address.query
  const chosen = consumers.data?.items.find(each => each.name === open && (each.group ?? '') === group)
  const columns = useMemo(() => subscriptionColumns(consumers.reload, address), [consumers.reload, open])
  return (
    <div class={chosen === undefined ? '' : 'split'}>
      <div class="page">
        <Head title="Subscriptions" sub="events for your own code, with acknowledgements" />
        <RunningOperations />
        <section class="panel">
          <Show of={consumers} rows={4}>
            {({ items }) =>
              items.length === 0 ? (
                <Empty title="Nothing subscribes">
                  <p>
                    <span class="mono">defineSubscription('mailer', {"{ types: ['OrderShipped'], run: … }"})</span>{' '}
                    gives events to your code, each at least once.
                  </p>
                </Empty>
              ) : (
                <Table
                  label="Subscriptions"
                  class="stackable"
                  rows={items}
                  keyOf={keyOf}
                  columns={chosen === undefined ? columns : columns.slice(0, 5)}
                  chosen={chosen === undefined ? undefined : keyOf(chosen)}
                  onOpen={each => address.push({ open: each.name, group: each.group })}
                />
              )
            }
          </Show>
        </section>
        <Cost of={[consumers]} />
      </div>
      {chosen !== undefined && (
        <SubscriptionInspector consumer={chosen} address={address} onChange={consumers.reload} />
      )}
    </div>
  )
}

function keyOf(each: Consumer): string {
  return `${each.name} ${each.group ?? ''}`
}

function subscriptionColumns(reload: () => void, address: Address): Column<Consumer>[] {
  return [
    {
      head: 'Subscription',
      cellClass: 'medium c-name',
      cell: each => <a href={address.with({ open: each.name, group: each.group })}>{each.name}</a>,
    },
    { head: 'Group', class: 'w-120', cellClass: 'dim', cell: each => each.group ?? '' },
    { head: 'State', class: 'w-148', cellClass: 'c-now', cell: each => <State {...consumerLook(each)} /> },
    { head: 'Checkpoint', class: 'w-96', cellClass: 'mono dim', cell: each => `#${each.checkpoint}` },
    { head: 'Lag', class: 'w-148 num', cell: lagText },
    {
      head: 'Dead letters',
      class: 'w-96 num',
      cell: each =>
        each.deadLetters === 0 ? (
          <span class="faint">0</span>
        ) : (
          <a class="tone-bad strong" href={pageUrl('/dead-letters', { of: each.name })}>
            {each.deadLetters}
          </a>
        ),
    },
    { head: 'Last error', cellClass: 'c-msg dim', cell: each => each.lastError?.message ?? '' },
    { head: '', class: 'w-96 num', cell: each => <PauseButton small consumer={each} onChange={reload} /> },
  ]
}

function SubscriptionInspector({
  consumer,
  address,
  onChange,
}: {
  consumer: Consumer
  address: Address
  onChange: () => void
}) {
  const { name } = consumer
  const groups = useReading('GET /subscriptions/:name', { parameters: { name }, everyMs: 3000 })
  const group = groups.data?.items.find(each => each.group === (consumer.group ?? each.group))
  const setLimit = async (each: Group): Promise<void> => {
    const text = await ask({
      title: `How many events of ${name} may be in flight?`,
      body: 'Events that were delivered and are not acknowledged yet, of each partition.',
      verb: 'Set the limit',
      field: { label: 'At most', initial: String(each.maxInFlight) },
    })
    if (text !== undefined)
      await act('POST /subscriptions/:name/:group/limit', {
        parameters: { name, group: each.group },
        body: { maxInFlight: Number(text) },
        done: `At most ${text} are in flight.`,
        after: groups.reload,
      })
  }
  const repartition = async (each: Group): Promise<void> => {
    const text = await ask({
      title: `How many partitions for ${name}?`,
      body: 'All of them run up to one position first; then the events are spread over the new ones. Events of one key stay in their order.',
      verb: 'Change the partitions',
      field: { label: 'Partitions', initial: String(each.partitions.length) },
      command: `rillflow subscriptions repartition ${name} COUNT --group ${each.group}`,
    })
    if (text !== undefined)
      await act('POST /subscriptions/:name/:group/repartition', {
        parameters: { name, group: each.group },
        body: { partitions: Number(text) },
        done: `The partitions of ${name} are changing.`,
        after: groups.reload,
      })
  }
  const remove = async (): Promise<void> => {
    const answer = await ask({
      title: `Delete ${name}${consumer.group === undefined ? '' : `, group ${consumer.group}`}?`,
      body: 'Its checkpoint and its dead letters are deleted. Where its code still is, it begins anew with the next start. Pausing keeps them.',
      verb: `Delete ${name}`,
      isDanger: true,
      name,
      command: `rillflow consumers remove ${name}`,
    })
    if (answer === undefined) return
    await act('DELETE /consumers/:name', {
      parameters: { name },
      body: { confirm: name, ...(consumer.group !== undefined && { group: consumer.group }) },
      done: `${name} is deleted.`,
      after: onChange,
    })
    address.replace({ open: undefined, group: undefined })
  }
  return (
    <aside class="inspector" aria-label={`Subscription ${name}`}>
      <header>
        <div class="line">
          <span class="title cut">{name}</span>
          <span class="faint">{consumer.group}</span>
          <span class="push actions">
            <Button
              kind="bare"
              small
              icon="close"
              label="Close"
              onClick={() => address.replace({ open: undefined, group: undefined })}
            />
          </span>
        </div>
      </header>
      <section>
        <h2>Partitions</h2>
        <Show of={groups} rows={3}>
          {() => (
            <table>
              <thead>
                <tr>
                  <th scope="col">Owner</th>
                  <th scope="col" class="w-96">
                    Checkpoint
                  </th>
                  <th scope="col" class="w-60 num">
                    Lag
                  </th>
                  <th scope="col" class="w-80 num">
                    Given back
                  </th>
                </tr>
              </thead>
              <tbody>
                {group?.partitions.map(each => (
                  <tr key={each.consumer}>
                    <td class="mono" title={each.owner}>
                      {each.owner === undefined ? <span class="faint">none</span> : shortId(each.owner)}
                    </td>
                    <td class="mono dim">#{each.checkpoint}</td>
                    <td class="num">{quantity(each.lag)}</td>
                    <td class="num">{quantity(each.givenBack)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Show>
      </section>
      {group !== undefined && (
        <section>
          <h2>In flight</h2>
          <p class="dim">At most {quantity(group.maxInFlight)} events that are not acknowledged.</p>
          <div class="actions below">
            <Button small refused={refusedFor('admin')} onClick={() => void setLimit(group)}>
              Change the limit…
            </Button>
            <Button small refused={refusedFor('admin')} onClick={() => void repartition(group)}>
              Change the partitions…
            </Button>
          </div>
        </section>
      )}
      {consumer.lastError !== undefined && (
        <section>
          <h2>Last error</h2>
          <ErrorView error={consumer.lastError} />
        </section>
      )}
      <footer>
        <PauseButton consumer={consumer} onChange={onChange} />
        <span class="push actions">
          <Button kind="danger" refused={refusedFor('admin')} onClick={() => void resetConsumer(consumer, onChange)}>
            Reset…
          </Button>
          <Button kind="danger" refused={refusedFor('admin')} onClick={() => void remove()}>
            Delete…
          </Button>
        </span>
      </footer>
    </aside>
  )
}
