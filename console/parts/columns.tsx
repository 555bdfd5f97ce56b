/** The columns of a table that are shown: a choice that this browser keeps, by the label of the table. */
import { signal } from '@preact/signals'
import { useRef } from 'preact/hooks'
import { Icon } from './icon.tsx'

const key = 'rillflow.columns'
const hidden = signal<Readonly<Record<string, readonly string[]>>>(stored())

/** Tables of the same kind share their choice: the name of a thing is not part of it. */
export function hiddenOf(table: string): readonly string[] {
  return hidden.value[table] ?? []
}

function choose(table: string, column: string, isShown: boolean): void {
  const others = hiddenOf(table).filter(each => each !== column)
  hidden.value = { ...hidden.value, [table]: isShown ? others : [...others, column] }
  try {
    localStorage.setItem(key, JSON.stringify(hidden.value))
  } catch {
    // A browser without storage forgets the choice.
  }
}

/** A button in the head of the table, seen when the pointer or the focus is there. The first column always stays. */
export function ColumnChoice({ table, columns }: { table: string; columns: readonly string[] }) {
  const button = useRef<HTMLButtonElement>(null)
  const box = useRef<HTMLDivElement>(null)
  const out = hiddenOf(table)
  const open = (): void => {
    const [at, shown] = [button.current?.getBoundingClientRect(), box.current]
    if (at === undefined || shown === null) return
    shown.togglePopover()
    shown.style.top = `${at.bottom + 4}px`
    shown.style.left = `${Math.max(8, at.right - shown.offsetWidth)}px`
  }
  return (
    <>
      <button
        ref={button}
        type="button"
        class="columns-button"
        aria-label="Choose columns"
        title="Choose columns"
        onClick={open}
      >
        <Icon name="columns" />
      </button>
      <div ref={box} class="columns-box" popover="auto" role="group" aria-label="Columns">
        {columns.map(column => (
          <label key={column}>
            <input
              type="checkbox"
              checked={!out.includes(column)}
              onChange={event => choose(table, column, event.currentTarget.checked)}
            />
            {column}
          </label>
        ))}
      </div>
    </>
  )
}

function stored(): Record<string, readonly string[]> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? '{}')
    return typeof found === 'object' && found !== null ? (found as Record<string, readonly string[]>) : {}
  } catch {
    return {}
  }
}
