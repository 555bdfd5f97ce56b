/**
 * The editor of JSON: CodeMirror, loaded where JSON is edited. It lives in a shadow root, where its styles are adopted sheets:
 * in the page they would be a style element, which the policy refuses.
 */
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { json, jsonParseLinter } from '@codemirror/lang-json'
import { bracketMatching, HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import { linter } from '@codemirror/lint'
import { EditorState } from '@codemirror/state'
import { EditorView, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { useEffect, useRef } from 'preact/hooks'

const highlights = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.string, color: 'var(--json-text)' },
    { tag: tags.number, color: 'var(--json-number)' },
    { tag: [tags.bool, tags.null], color: 'var(--json-word)' },
    { tag: [tags.punctuation, tags.brace, tags.squareBracket, tags.separator], color: 'var(--text-3)' },
  ]),
)

const look = EditorView.theme({
  '&': { background: 'var(--bg)', color: 'var(--text)', minHeight: '152px' },
  '&.cm-focused': { outline: 'none', boxShadow: 'inset 0 0 0 1.5px var(--accent-fill)' },
  '.cm-scroller': { font: 'var(--m-12)' },
  '.cm-content': { padding: '8px 0', caretColor: 'var(--text)' },
  '.cm-gutters': { background: 'none', color: 'var(--text-3)', border: '0', paddingLeft: '8px' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': { background: 'var(--accent-soft)' },
  '.cm-matchingBracket': { background: 'var(--press)' },
  '.cm-tooltip': { background: 'var(--lift)', border: '1px solid var(--line-strong)' },
})

/** Over a selection the browser would keep its style as an attribute, which the policy refuses: the editor replaces it itself. */
const replacing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== 'insertText' || event.data === null || view.state.selection.main.empty) return false
    event.preventDefault()
    view.dispatch(view.state.replaceSelection(event.data))
    return true
  },
})

export function JsonEditor({ text, label, onText }: { text: string; label: string; onText: (text: string) => void }) {
  const place = useRef<HTMLDivElement>(null)
  const latest = useRef(onText)
  latest.current = onText
  useEffect(() => {
    if (place.current === null) return
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: 'open' })
    const view = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: text,
        extensions: [
          ...[
            lineNumbers(),
            history(),
            bracketMatching(),
            json(),
            linter(jsonParseLinter()),
            highlights,
            look,
            replacing,
          ],
          ...[keymap.of([...defaultKeymap, ...historyKeymap]), EditorView.lineWrapping],
          EditorView.contentAttributes.of({ 'aria-label': label }),
          EditorView.updateListener.of(update => {
            if (update.docChanged) latest.current(update.state.doc.toString())
          }),
        ],
      }),
    })
    return () => view.destroy()
    // The editor owns its text from then on.
  }, [label])
  return <div class="json-editor" ref={place} />
}
