/** Tenants: where each is, and how it stands. The status of one costs several statements, so it is read for one at a time. */
import { refusedFor, request } from '../api/api.ts'
import { place } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { bytes, estimate, quantity } from '../parts/format.ts'
import { Button, Facts, Head, State } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { act } from '../shell/act.ts'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import { HeatMap } from './heat-map.tsx'
import { RunningOperations } from './operation-lines.tsx'

type Placement = AnswerOf<'GET /tenants'>['items'][number]

export function TenantsPage() {
  useWhere({ label: 'Tenants' })
  const address = useAddress()
  const { after, open } = address.query
  const tenants = useReading('GET /tenants', { query: { after, limit: 200 } })
  const sync = (): Promise<unknown> => act('POST /tenants/sync', { done: 'The sync of all tenants has begun.' })
  return (
    <div class={open === undefined ? '' : 'split'}>
      <div class="page">
        <Head title="Tenants" sub="each with a schema of its own">
          <Button refused={refusedFor('admin')} onClick={() => void sync()}>
            Sync all
          </Button>
          <Button icon="plus" refused={refusedFor('admin')} onClick={() => void make(tenants.reload)}>
            New tenant…
          </Button>
        </Head>
        <RunningOperations />
        <HeatMap address={address} open={open} />
        <section class="panel">
          <Show of={tenants} rows={8}>
            {({ items, next }) =>
              items.length === 0 ? (
                <Empty title="There is no tenant yet">
                  <p>
                    <span class="mono">rillflow tenants ensure acme</span> makes the first.
                  </p>
                </Empty>
              ) : (
                <>
                  <Table
                    label="Tenants"
                    class="stackable"
                    rows={items}
                    keyOf={each => each.tenant}
                    chosen={open}
                    onOpen={each => address.push({ open: each.tenant })}
                    columns={columns(address)}
                  />
                  {next !== null && (
                    <footer>
                      <a class="link push" href={address.with({ after: next })}>
                        Next page
                      </a>
                    </footer>
                  )}
                </>
              )
            }
          </Show>
        </section>
        <Cost of={[tenants]} />
      </div>
      {open !== undefined && <TenantInspector tenant={open} address={address} onChange={tenants.reload} />}
    </div>
  )
}

async function make(after: () => void): Promise<void> {
  const tenant = await ask({
    title: 'Make a tenant',
    body: 'It gets a schema of its own. A name that exists is brought up to date.',
    verb: 'Make it',
    field: { label: 'Name', hint: 'Lower case letters, digits and _.' },
    command: 'rillflow tenants ensure NAME',
  })
  if (tenant !== undefined)
    await act('POST /tenants/:tenant/ensure', {
      parameters: { tenant: tenant.trim() },
      done: ({ server }) => `${tenant.trim()} is there, on ${server}.`,
      after,
    })
}

function columns(address: Address) {
  return [
    {
      head: 'Tenant',
      cellClass: 'medium c-name',
      cell: (each: Placement) => <a href={address.with({ open: each.tenant })}>{each.tenant}</a>,
    },
    { head: 'Server', class: 'w-180', cellClass: 'dim c-msg', cell: (each: Placement) => each.server },
    { head: 'Schema', class: 'w-180', cellClass: 'mono dim', cell: (each: Placement) => each.schema },
    {
      head: 'State',
      class: 'w-120',
      cellClass: 'c-now',
      cell: (each: Placement) =>
        each.state === 'active' ? (
          <State shape="done" tone="good" word="Active" />
        ) : (
          <State shape="running" tone="run" word="Moving" />
        ),
    },
  ]
}

function TenantInspector({ tenant, address, onChange }: { tenant: string; address: Address; onChange: () => void }) {
  const status = useReading('GET /tenants/:tenant/status', { parameters: { tenant } })
  const drop = async (): Promise<void> => {
    const answer = await ask({
      title: `Drop ${tenant} with everything it has?`,
      body: 'Its events, documents and workflows are deleted. This cannot be undone; export it first.',
      verb: `Drop ${tenant}`,
      isDanger: true,
      name: tenant,
      command: `rillflow tenants drop ${tenant} --force`,
    })
    if (answer !== undefined)
      await act('DELETE /tenants/:tenant', {
        parameters: { tenant },
        body: { confirm: tenant },
        done: `${tenant} is dropped.`,
        after: onChange,
      })
  }
  const move = async (): Promise<void> => {
    const servers = await request('GET /tenants/servers', { query: { limit: 500 } })
    const others = servers.data.items.filter(server => server !== status.data?.server)
    const server = await ask({
      title: `Move ${tenant} to another server?`,
      body: `It stays in use: writers wait for a moment at the end. There ${others.length === 1 ? 'is' : 'are'} ${
        others.length === 0 ? 'no other server' : others.join(', ')
      }.`,
      verb: `Move ${tenant}`,
      field: { label: 'Server', initial: others[0] ?? '' },
      command: `rillflow tenants move ${tenant} SERVER`,
    })
    if (server !== undefined)
      await act('POST /tenants/:tenant/move', {
        parameters: { tenant },
        body: { server },
        done: `${tenant} moves to ${server}.`,
        after: onChange,
      })
  }
  return (
    <aside class="inspector" aria-label={`Tenant ${tenant}`}>
      <header>
        <div class="line">
          <span class="title cut">{tenant}</span>
          <span class="push actions">
            <Button kind="bare" small icon="close" label="Close" onClick={() => address.replace({ open: undefined })} />
          </span>
        </div>
      </header>
      <section>
        <Show of={status}>
          {each => (
            <Facts
              facts={[
                ['Server', each.server],
                ['Schema', each.schema, 'mono'],
                ['Size', bytes(each.bytes)],
                ['Events', estimate(each.events)],
                ['Head', `#${each.head}`, 'mono'],
                ['Lag', quantity(each.lag)],
                ['Migration', String(each.version)],
                ['Missing', each.pending.length === 0 ? 'nothing' : each.pending.join(', '), 'wrap'],
                ['Drift', each.drift.length === 0 ? 'none' : each.drift.join(', '), 'wrap'],
              ]}
            />
          )}
        </Show>
      </section>
      <footer>
        <Button kind="main" onClick={() => location.assign(`${place.base}/t/${encodeURIComponent(tenant)}`)}>
          Open its console
        </Button>
        <span class="push actions">
          <Button refused={refusedFor('admin')} onClick={() => void move()}>
            Move…
          </Button>
          <Button kind="danger" refused={refusedFor('admin')} onClick={() => void drop()}>
            Drop…
          </Button>
        </span>
      </footer>
    </aside>
  )
}
