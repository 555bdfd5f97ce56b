/** Keys: a page and the shell register theirs while they are shown. Keys typed into a field are the field's. */
import { useEffect } from 'preact/hooks'

export type Keys = Readonly<Record<string, () => void>>

const registered = new Set<Keys>()
let pending: { readonly key: string; readonly at: number } | undefined

/** `g e` is the key g, and e within a second. */
export function useKeys(keys: Keys): void {
  useEffect(() => {
    registered.add(keys)
    return () => {
      registered.delete(keys)
    }
  }, [keys])
}

export function listenToKeys(): () => void {
  const listener = (event: KeyboardEvent): void => {
    if (event.defaultPrevented) return
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === 'k') {
      take(event, 'mod+k')
      return
    }
    if (event.metaKey || event.ctrlKey || event.altKey) return
    if (isField(event.target)) {
      if (event.key === 'Escape') (event.target as HTMLElement).blur()
      return
    }
    if (document.querySelector('dialog[open]') !== null) return
    const chain = pending !== undefined && Date.now() - pending.at < 1000 ? `${pending.key} ${event.key}` : undefined
    pending = undefined
    if (chain !== undefined && take(event, chain)) return
    if (event.key === 'g') pending = { key: 'g', at: Date.now() }
    else take(event, event.key)
  }
  addEventListener('keydown', listener)
  return () => removeEventListener('keydown', listener)
}

/** The newest registration wins: that of the page before that of the shell. */
function take(event: KeyboardEvent, key: string): boolean {
  for (const keys of [...registered].reverse()) {
    const run = keys[key]
    if (run === undefined) continue
    if (key === 'Enter' && isPressable(event.target)) return false
    event.preventDefault()
    run()
    return true
  }
  return false
}

function isField(target: EventTarget | null): boolean {
  return (
    target instanceof Element &&
    target.closest('input:not([type=radio]), textarea, select, [contenteditable=true]') !== null
  )
}

function isPressable(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('a, button, summary') !== null
}
