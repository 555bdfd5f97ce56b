/** The consumers of the log, and whether each has seen an event. The figures know it, so it costs no request. */
import { pageUrl } from '../api/place.ts'
import { quantity } from '../parts/format.ts'
import { State } from '../parts/parts.tsx'
import { figures } from '../shell/figures.ts'

export function SeenBy({ position }: { position: number }) {
  const readers = figures.value?.consumers ?? []
  return (
    <ul class="seen">
      {readers.map(each => (
        <li key={each.name}>
          <a class="cut medium" href={pageUrl(`/projections/${encodeURIComponent(each.name.split('/')[0]!)}`)}>
            {each.name}
          </a>
          <span class="faint">{each.state === 'inline' ? `${each.kind}, inline` : each.kind}</span>
          {each.state === 'inline' ? (
            <State shape="done" tone="good" word="With the append" />
          ) : each.checkpoint >= position ? (
            <State shape="done" tone="good" word="Passed" />
          ) : (
            <State
              shape={each.isPaused ? 'paused' : 'behind'}
              tone={each.isPaused ? 'rest' : 'warn'}
              word={each.isPaused ? 'Paused' : `${quantity(position - each.checkpoint)} to go`}
            />
          )}
        </li>
      ))}
    </ul>
  )
}
