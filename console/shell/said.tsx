/** The last thing that was done, in a sentence, with the way back if there is one. */
import { signal } from '@preact/signals'
import { Icon } from '../parts/icon.tsx'

interface Said {
  readonly text: string
  readonly isBad: boolean
  readonly undo?: { readonly label: string; readonly run: () => void } | undefined
}

const said = signal<Said | undefined>(undefined)
let timer: ReturnType<typeof setTimeout> | undefined

export function say(text: string, options: { isBad?: boolean; undo?: Said['undo'] } = {}): void {
  said.value = { text, isBad: options.isBad ?? false, undo: options.undo }
  clearTimeout(timer)
  if (options.isBad !== true) timer = setTimeout(unsay, options.undo === undefined ? 4000 : 12_000)
}

function unsay(): void {
  said.value = undefined
}

/** It floats, so nothing moves because of it. */
export function SaidLine() {
  const now = said.value
  return (
    <div class="said-place" role="status">
      {now !== undefined && (
        <div class={`said-line ${now.isBad ? 'is-bad' : ''}`}>
          <span>{now.text}</span>
          {now.undo !== undefined && (
            <button
              type="button"
              class="btn btn-small"
              onClick={() => {
                unsay()
                now.undo?.run()
              }}
            >
              {now.undo.label}
            </button>
          )}
          <button type="button" class="copy" aria-label="Close" onClick={unsay}>
            <Icon name="close" />
          </button>
        </div>
      )}
    </div>
  )
}
