/** The keys, on `?`. */
import { useEffect, useRef } from 'preact/hooks'
import { railGroups } from './rail.tsx'

const keys: readonly (readonly [string, string])[] = [
  ['Ctrl K', 'Find or do anything'],
  ['/', 'Filter'],
  ['j k', 'Next and previous row'],
  ['Enter', 'Open'],
  ['c', 'Copy the row as JSON'],
  ['Esc', 'Close, back'],
  ['p', 'Pause or continue live'],
  ['[ ]', 'Version before and after'],
  ['d', 'Diff or plain'],
  ['y', 'Copy the command line'],
  ['t', 'Theme'],
]

export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  const pages = railGroups.flatMap(([, group]) => group.map(page => [`g ${page.key}`, page.label] as const))
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={onClose}>
      <div class="help-in">
        <h2 id="help-title">Keys</h2>
        <div class="two">
          {[keys, pages].map((list, index) => (
            <dl class="key-list" key={index === 0 ? 'keys' : 'pages'}>
              {list.map(([key, what]) => (
                <div class="fact" key={key}>
                  <dt>
                    {key.split(' ').map(each => (
                      <kbd key={each}>{each}</kbd>
                    ))}
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          ))}
        </div>
      </div>
      <footer>
        <button type="button" class="btn" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </footer>
    </dialog>
  )
}
