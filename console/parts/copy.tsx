/** Copying: by the clipboard where the browser allows it, and by a selection on plain http. */
import { useState } from 'preact/hooks'
import { say } from '../shell/said.tsx'
import { Icon } from './icon.tsx'

export function copyText(text: string): void {
  const done = (): void => say('Copied.')
  if (navigator.clipboard !== undefined && window.isSecureContext) {
    navigator.clipboard.writeText(text).then(done, () => copyBySelection(text))
    return
  }
  copyBySelection(text)
}

function copyBySelection(text: string): void {
  const focused = document.activeElement
  const area = document.createElement('textarea')
  area.value = text
  area.className = 'sr'
  document.body.append(area)
  area.select()
  const isCopied = document.execCommand('copy')
  area.remove()
  if (focused instanceof HTMLElement || focused instanceof SVGElement) focused.focus()
  say(isCopied ? 'Copied.' : 'The browser refuses to copy here. Mark the text and copy it by hand.')
}

export function Copy({ text, label }: { text: string; label: string }) {
  return (
    <button
      type="button"
      class="copy"
      aria-label={`Copy ${label}`}
      title={`Copy ${label}`}
      onClick={() => copyText(text)}
    >
      <Icon name="copy" />
    </button>
  )
}

/** The same as a command of a terminal. */
export function Command({ line, wrap = false }: { line: string; wrap?: boolean }) {
  return (
    <div class={`cli ${wrap ? 'cli-wrap' : ''}`}>
      <code title={line}>{line}</code>
      <Copy text={line} label="command" />
    </div>
  )
}

/** A section of code that can be copied. */
export function Code({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(text.length < 4000)
  return (
    <div class="code-box">
      <pre class="code" tabIndex={0}>
        {isWhole ? text : text.slice(0, 4000)}
      </pre>
      {!isWhole && (
        <button type="button" class="btn btn-small btn-bare" onClick={() => setWhole(true)}>
          Show all
        </button>
      )}
      <Copy text={text} label="code" />
    </div>
  )
}
