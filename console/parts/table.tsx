/** A table: fixed layout, sticky head, one line a row. From 200 rows on only those in the window are in the document. */
import { observeWindowOffset, observeWindowRect, Virtualizer, windowScroll } from '@tanstack/virtual-core'
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useReducer, useRef } from 'preact/hooks'
import { copyJson } from '../json/view.tsx'
import { ColumnChoice, hiddenOf } from './columns.tsx'

export interface Column<T> {
  readonly head: string
  /** Its width, and `num` for quantities: `w-96 num`. */
  readonly class?: string
  readonly cell: (row: T) => ComponentChildren
  readonly cellClass?: string
  readonly title?: (row: T) => string | undefined
}

interface TableProps<T> {
  label: string
  columns: readonly Column<T>[]
  rows: readonly T[]
  keyOf: (row: T) => string
  /** A click anywhere in a row, and Enter. */
  onOpen?: ((row: T) => void) | undefined
  chosen?: string | undefined
  class?: string
  /** Whether the head stays under the bar. */
  sticks?: boolean
}

const virtualFrom = 200

/** From so many columns on, a reader can leave some out. */
const choosableFrom = 5

export function Table<T>(all: TableProps<T>) {
  const out = hiddenOf(all.label)
  const choosable = all.columns.slice(1).filter(({ head }) => head !== '')
  const columns = all.columns.filter(({ head }, index) => index === 0 || !out.includes(head))
  const props = { ...all, columns }
  const { label, rows, chosen, keyOf, sticks } = props
  const hasChoice = all.columns.length >= choosableFrom
  return (
    <table class={props.class ?? ''} aria-label={label}>
      <thead class={sticks ? 'stick' : ''}>
        <tr>
          {columns.map((column, index) => {
            const isLast = hasChoice && index === columns.length - 1
            return (
              <th key={column.head} scope="col" class={`${column.class ?? ''} ${isLast ? 'has-columns' : ''}`}>
                {column.head === '' ? <span class="sr">Actions</span> : column.head}
                {isLast && <ColumnChoice table={label} columns={choosable.map(({ head }) => head)} />}
              </th>
            )
          })}
        </tr>
      </thead>
      {rows.length < virtualFrom ? (
        <tbody>
          {rows.map(row => (
            <Row key={keyOf(row)} {...props} row={row} isChosen={keyOf(row) === chosen} />
          ))}
        </tbody>
      ) : (
        <VirtualBody {...props} />
      )}
    </table>
  )
}

function Row<T>({ columns, row, isChosen, onOpen }: TableProps<T> & { row: T; isChosen: boolean }) {
  return (
    <tr
      aria-selected={isChosen ? 'true' : undefined}
      class={onOpen === undefined ? '' : 'opens'}
      onKeyDown={event => {
        if (event.key === 'c' && !event.ctrlKey && !event.metaKey && !event.altKey) copyJson(row)
      }}
      onClick={event => {
        if (onOpen !== undefined && !(event.target as Element).closest('a, button, input')) onOpen(row)
      }}
    >
      {columns.map(column => (
        <td
          key={column.head}
          class={`${/\bnum\b/.test(column.class ?? '') ? 'num ' : ''}${column.cellClass ?? ''}`}
          title={column.title?.(row)}
        >
          {column.cell(row)}
        </td>
      ))}
    </tr>
  )
}

function VirtualBody<T>(props: TableProps<T>) {
  const { rows, keyOf, chosen } = props
  const body = useRef<HTMLTableSectionElement>(null)
  const [, redraw] = useReducer((round: number) => round + 1, 0)
  const virtual = useRef<Virtualizer<Window, HTMLTableRowElement> | undefined>(undefined)
  const rowHeight = matchMedia('(max-width: 720px)').matches ? 44 : 32
  const options = {
    count: rows.length,
    estimateSize: () => rowHeight,
    overscan: 20,
    getScrollElement: () => window,
    observeElementRect: observeWindowRect,
    observeElementOffset: observeWindowOffset,
    scrollToFn: windowScroll,
    initialRect: { width: innerWidth, height: innerHeight },
    initialOffset: () => scrollY,
    scrollMargin: body.current === null ? 0 : body.current.getBoundingClientRect().top + scrollY,
    onChange: redraw,
  }
  if (virtual.current === undefined) virtual.current = new Virtualizer<Window, HTMLTableRowElement>(options)
  const made = virtual.current
  made.setOptions(options)
  useLayoutEffect(() => made._didMount(), [made])
  useLayoutEffect(() => made._willUpdate())
  useEffect(() => {
    const index = chosen === undefined ? -1 : rows.findIndex(row => keyOf(row) === chosen)
    if (index >= 0) made.scrollToIndex(index, { align: 'auto' })
  }, [chosen, made, rows, keyOf])
  const items = made.getVirtualItems()
  const first = items[0]
  const last = items.at(-1)
  const above = first === undefined ? 0 : first.start - made.options.scrollMargin
  const below = last === undefined ? rows.length * rowHeight : rows.length * rowHeight - (last.index + 1) * rowHeight
  return (
    <tbody ref={body}>
      <Spacer height={above} columns={props.columns.length} />
      {items.map(item => {
        const row = rows[item.index]!
        return <Row key={keyOf(row)} {...props} row={row} isChosen={keyOf(row) === chosen} />
      })}
      <Spacer height={below} columns={props.columns.length} />
    </tbody>
  )
}

/** Its height is set as a property: the policy of the page refuses style attributes. */
function Spacer({ height, columns }: { height: number; columns: number }) {
  const cell = useRef<HTMLTableCellElement>(null)
  useLayoutEffect(() => {
    if (cell.current !== null) cell.current.style.height = `${Math.max(0, height)}px`
  }, [height])
  return (
    <tr class="spacer" aria-hidden="true">
      <td ref={cell} colSpan={columns} />
    </tr>
  )
}
