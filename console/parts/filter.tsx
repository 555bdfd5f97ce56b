/** The filter line: terms `key: value`, each with a cross, then free input. Everything is in the address. */
import { useMemo, useRef, useState } from 'preact/hooks'
import { useKeys } from '../shell/keys.ts'
import { saveView } from '../shell/views.ts'
import { ownPath } from '../shell/where.ts'
import { ask } from './dialog.tsx'
import { Icon, Shape } from './icon.tsx'

interface FilterProps {
  /** The keys that a term can have, in their order. */
  keys: readonly string[]
  values: Readonly<Record<string, string | undefined>>
  placeholder: string
  /** Values to suggest, by key. */
  suggestions?: Readonly<Record<string, readonly string[]>>
  onChange: (change: Record<string, string | undefined>) => void
  /** Text without a key. */
  onText: (text: string) => void
}

export function FilterLine({ keys, values, placeholder, suggestions = {}, onChange, onText }: FilterProps) {
  const [text, setText] = useState('')
  const input = useRef<HTMLInputElement>(null)
  useKeys(useMemo(() => ({ '/': () => input.current?.focus() }), []))
  const terms = keys.filter(key => values[key] !== undefined && values[key] !== '')
  const send = (): void => {
    const given = text.trim()
    if (given === '') return
    const [, key, value] = /^(\w+):\s*(.*)$/.exec(given) ?? []
    if (key !== undefined && keys.includes(key) && value !== undefined && value !== '') onChange({ [key]: value })
    else onText(given)
    setText('')
  }
  const save = async (): Promise<void> => {
    const name = await ask({
      title: 'Save this view',
      body: 'It is kept in this browser, and listed in the rail.',
      verb: 'Save',
      field: { label: 'Name', initial: terms.map(key => values[key]).join(' ') },
    })
    if (name !== undefined) saveView({ name: name.trim(), path: ownPath(location.pathname) + location.search })
  }
  return (
    <form
      class="filter"
      role="search"
      onSubmit={event => {
        event.preventDefault()
        send()
      }}
    >
      <Icon name="filter" />
      {terms.map(key => (
        <span class="term" key={key}>
          <b>{key}:</b>
          <span>{values[key]}</span>
          <button type="button" aria-label={`Remove ${key}`} onClick={() => onChange({ [key]: undefined })}>
            <Shape name="cross" />
          </button>
        </span>
      ))}
      <input
        ref={input}
        aria-label="Filter"
        placeholder={placeholder}
        list="filter-suggestions"
        value={text}
        autocomplete="off"
        spellcheck={false}
        onInput={event => setText(event.currentTarget.value)}
        onKeyDown={event => {
          const last = terms.at(-1)
          if (event.key === 'Backspace' && text === '' && last !== undefined) onChange({ [last]: undefined })
        }}
      />
      <datalist id="filter-suggestions">
        {Object.entries(suggestions).flatMap(([key, list]) =>
          list.map(value => <option key={key + value} value={`${key}: ${value}`} />),
        )}
      </datalist>
      {terms.length > 0 && (
        <button type="button" class="btn btn-small btn-bare" onClick={() => void save()}>
          Save view…
        </button>
      )}
      <kbd>/</kbd>
    </form>
  )
}

/** `10m`, `2h`, `3d` before now, or a time as it is; undefined if it is neither. */
export function timeOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined
  const [, count, unit] = /^(\d+)\s*(s|m|h|d)$/.exec(text) ?? []
  const size = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? '']
  if (size !== undefined) return new Date(Date.now() - Number(count) * size).toISOString()
  const date = new Date(text)
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString()
}
