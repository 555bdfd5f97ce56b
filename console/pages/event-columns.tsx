/** The columns of the list of events. Those at the end leave first when the inspector is open. */
import { pageUrl } from '../api/place.ts'
import { OneLine } from '../json/view.tsx'
import { shortId } from '../parts/format.ts'
import { At } from '../parts/parts.tsx'
import type { Column } from '../parts/table.tsx'
import type { Address } from '../shell/where.ts'
import type { ListedEvent } from './event-list.ts'

export function eventColumns(address: Address): Column<ListedEvent>[] {
  return [
    {
      head: 'Position',
      class: 'w-pos',
      cellClass: 'mono',
      cell: event => <a href={address.with({ open: event.id })}>#{event.position}</a>,
    },
    { head: 'Time', class: 'w-time', cellClass: 'mono dim', cell: event => <At at={event.createdAt} fine /> },
    { head: 'Type', class: 'w-type', cellClass: 'medium', cell: event => event.type, title: event => event.type },
    {
      head: 'Stream',
      class: 'w-stream',
      cellClass: 'mono dim',
      cell: event => (
        <a href={pageUrl(`/streams/${encodeURIComponent(event.stream)}`, { version: event.version })}>
          {event.stream}@{event.version}
        </a>
      ),
      title: event => event.stream,
    },
    { head: 'Data', cellClass: 'oneline', cell: event => <OneLine value={event.data} /> },
    {
      head: 'User',
      class: 'w-96 hide-narrow',
      cellClass: 'dim hide-narrow',
      cell: event => event.userId ?? '',
      title: event => event.userId,
    },
    {
      head: 'Workflow',
      class: 'w-148 hide-narrow',
      cellClass: 'mono faint hide-narrow',
      cell: event => (
        <a href={pageUrl(`/workflows/${encodeURIComponent(event.correlationId)}`)}>{shortId(event.correlationId)}</a>
      ),
    },
  ]
}
