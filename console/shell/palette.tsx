/** The palette: finds a thing by its name, position or id, goes to a page, or does what a button does. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { copyText } from '../parts/copy.tsx'
import { Icon } from '../parts/icon.tsx'
import { isPaletteOpen } from './palette-state.ts'
import { type Found, findThings, pagesMatching } from './search.ts'

export function Palette() {
  const dialog = useRef<HTMLDialogElement>(null)
  const { route } = useLocation()
  const [text, setText] = useState('')
  const [found, setFound] = useState<readonly Found[]>([])
  const [at, setAt] = useState(0)
  useEffect(() => dialog.current?.showModal(), [])
  useEffect(() => {
    const abort = new AbortController()
    const timer = setTimeout(() => {
      findThings(text.trim(), abort.signal)
        .then(setFound)
        .catch(() => {})
    }, 120)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [text])
  const options = useMemo(() => [...found, ...pagesMatching(text.trim())], [found, text])
  const chosen = Math.min(at, Math.max(0, options.length - 1))
  const close = (): void => {
    isPaletteOpen.value = false
  }
  const take = (option: Found | undefined): void => {
    if (option === undefined || option.refused !== undefined) return
    close()
    if (option.href !== undefined) route(option.href)
    else void option.run?.()
  }
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === 'ArrowDown') setAt(Math.min(chosen + 1, options.length - 1))
    else if (event.key === 'ArrowUp') setAt(Math.max(chosen - 1, 0))
    else if (event.key === 'Enter') take(options[chosen])
    else if (event.key === 'c' && (event.ctrlKey || event.metaKey) && getSelection()?.toString() === '')
      copyText(options[chosen]?.command ?? '')
    else return
    event.preventDefault()
  }
  const groups = [...new Set(options.map(({ group }) => group))]
  return (
    <dialog
      ref={dialog}
      class="palette"
      aria-label="Find or do anything"
      onClose={close}
      onClick={event => event.target === dialog.current && close()}
    >
      <div class="ask">
        <Icon name="search" />
        <input
          value={text}
          placeholder="A name, a position, an id, or something to do"
          aria-label="Find or do anything"
          role="combobox"
          aria-expanded="true"
          aria-controls="found"
          aria-activedescendant={options.length > 0 ? `option-${chosen}` : undefined}
          autocomplete="off"
          spellcheck={false}
          onInput={event => {
            setText(event.currentTarget.value)
            setAt(0)
          }}
          onKeyDown={onKey}
        />
        <kbd>Esc</kbd>
      </div>
      <div id="found" class="found" role="listbox" aria-label="Found">
        {groups.map(group => (
          <div role="group" aria-label={group} key={group}>
            <p class="opt-h" aria-hidden="true">
              {group}
            </p>
            {options.map(
              (option, index) =>
                option.group === group && (
                  <Option
                    key={option.key}
                    option={option}
                    index={index}
                    isChosen={index === chosen}
                    text={text.trim()}
                    onTake={() => take(option)}
                  />
                ),
            )}
          </div>
        ))}
        {options.length === 0 && (
          <p class="none">Nothing has this name. A position is a number; an event or a workflow has an id.</p>
        )}
      </div>
      <footer>
        <span>
          <kbd>↑</kbd>
          <kbd>↓</kbd> choose
        </span>
        <span>
          <kbd>↵</kbd> open
        </span>
        <span class="hide-phone">
          <kbd>Ctrl C</kbd> copy its command
        </span>
      </footer>
    </dialog>
  )
}

function Option(props: { option: Found; index: number; isChosen: boolean; text: string; onTake: () => void }) {
  const { option, index, isChosen, text, onTake } = props
  const row = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (isChosen) row.current?.scrollIntoView({ block: 'nearest' })
  }, [isChosen])
  return (
    <div
      ref={row}
      class="opt"
      role="option"
      id={`option-${index}`}
      tabIndex={-1}
      aria-selected={isChosen}
      aria-disabled={option.refused === undefined ? undefined : true}
      onClick={onTake}
    >
      <Icon name={option.icon} />
      <b class="cut">
        <Marked label={option.label} text={text} />
      </b>
      <span class="more cut">{option.detail}</span>
      {option.refused !== undefined ? <span class="more">{option.refused}</span> : isChosen ? <kbd>↵</kbd> : <span />}
    </div>
  )
}

function Marked({ label, text }: { label: string; text: string }) {
  const at = text === '' ? -1 : label.toLowerCase().indexOf(text.toLowerCase())
  if (at < 0) return <>{label}</>
  return (
    <>
      {label.slice(0, at)}
      <mark>{label.slice(at, at + text.length)}</mark>
      {label.slice(at + text.length)}
    </>
  )
}
