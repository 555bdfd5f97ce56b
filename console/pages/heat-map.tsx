/** All tenants at once, one square each: how fast their logs grow. One statement a server tells it, however many there are. */
import { useRef } from 'preact/hooks'
import { useReading } from '../api/reading.ts'
import { quantity, rate } from '../parts/format.ts'
import { Panel } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import type { Address } from '../shell/where.ts'

const steps = [0, 0.1, 1, 10, 100] as const
const words = ['none', 'below 1', '1 to 10', '10 to 100', '100 or more']
const size = 16

export function HeatMap({ address, open }: { address: Address; open: string | undefined }) {
  const heads = useReading('GET /tenants/heads', { everyMs: 2500 })
  const first = useRef<{ readonly at: number; readonly heads: ReadonlyMap<string, number> } | undefined>(undefined)
  if (heads.data !== undefined && heads.at !== undefined && first.current === undefined)
    first.current = {
      at: heads.at,
      heads: new Map(heads.data.items.map(each => [each.tenant, each.head ?? 0])),
    }
  const rateOf = (tenant: string, head: number | undefined): number => {
    const known = first.current
    const before = known?.heads.get(tenant)
    const ms = (heads.at ?? 0) - (known?.at ?? 0)
    return head === undefined || before === undefined || ms < 1000 ? 0 : ((head - before) * 1000) / ms
  }
  return (
    <Panel title="Growth" sub="events a second since this page was opened, a square for each tenant">
      <Show of={heads} rows={2}>
        {({ items }) => (
          <div class="pad stack-2">
            <ul class="heat" aria-label="Tenants by growth">
              {items.map(({ tenant, head }) => {
                const perSecond = rateOf(tenant, head)
                const step = steps.filter(limit => perSecond >= limit && perSecond > 0).length
                const said = head === undefined ? 'no answer' : `${rate(perSecond)} a second, ${quantity(head)} in all`
                return (
                  <li key={tenant}>
                    <a
                      href={address.with({ open: tenant })}
                      title={`${tenant}: ${said}`}
                      aria-current={open === tenant ? 'true' : undefined}
                    >
                      <svg viewBox={`0 0 ${size} ${size}`} width={size} height={size} aria-hidden="true">
                        <rect
                          class={head === undefined ? 'heat-none' : `heat-${Math.min(4, Math.max(0, step - 1))}`}
                          width={size}
                          height={size}
                          rx="3"
                        />
                        {head === undefined && <path class="heat-cross" d="m4 4 8 8M12 4l-8 8" />}
                      </svg>
                      <span class="sr">{`${tenant}: ${said}`}</span>
                    </a>
                  </li>
                )
              })}
            </ul>
            <p class="heat-key faint">
              {words.map((word, at) => (
                <span key={word}>
                  <svg viewBox={`0 0 ${size} ${size}`} width="10" height="10" aria-hidden="true">
                    <rect class={`heat-${at}`} width={size} height={size} rx="3" />
                  </svg>
                  {word}
                </span>
              ))}
            </p>
          </div>
        )}
      </Show>
    </Panel>
  )
}
