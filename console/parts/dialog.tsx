/** Questions before an action: with the count the server found, or the name to type. The way out has the focus. */
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Command } from './copy.tsx'
import { Button } from './parts.tsx'

export interface Question {
  readonly title: string
  readonly body: ComponentChildren
  /** The button repeats the verb: `Retry 6 dead letters`. */
  readonly verb: string
  readonly command?: string | undefined
  readonly isDanger?: boolean | undefined
  /** The name to type, for what cannot be undone. */
  readonly name?: string | undefined
  /** Asks for a text, which the answer then is. */
  readonly field?: { readonly label: string; readonly hint?: string; readonly initial?: string } | undefined
  readonly instead?: { readonly label: string; readonly run: () => void } | undefined
}

interface Asked extends Question {
  readonly answer: (text: string | undefined) => void
}

const asked = signal<Asked | undefined>(undefined)

/** Resolves with the text of the field (or with '' where there is none); undefined if it was left. */
export function ask(question: Question): Promise<string | undefined> {
  asked.value?.answer(undefined)
  return new Promise(resolve => {
    asked.value = {
      ...question,
      answer: text => {
        asked.value = undefined
        resolve(text)
      },
    }
  })
}

export function Dialogs() {
  const question = asked.value
  return question === undefined ? null : <QuestionDialog key={question.title} question={question} />
}

function QuestionDialog({ question }: { question: Asked }) {
  const { title, body, verb, command, isDanger, name, field, instead, answer } = question
  const dialog = useRef<HTMLDialogElement>(null)
  const [typed, setTyped] = useState('')
  const [text, setText] = useState(field?.initial ?? '')
  useEffect(() => dialog.current?.showModal(), [])
  const isReady = (name === undefined || typed === name) && (field === undefined || text.trim() !== '')
  return (
    <dialog ref={dialog} class="confirm" aria-labelledby="ask-title" onClose={() => answer(undefined)}>
      <form
        method="dialog"
        onSubmit={event => {
          event.preventDefault()
          if (isReady) answer(text)
        }}
      >
        <div>
          <h2 id="ask-title">{title}</h2>
          <div class="dim">{body}</div>
          {field !== undefined && (
            <div class="field">
              <label for="ask-field">{field.label}</label>
              <input id="ask-field" class="input" value={text} onInput={event => setText(event.currentTarget.value)} />
              {field.hint !== undefined && <span class="hint">{field.hint}</span>}
            </div>
          )}
          {name !== undefined && (
            <div class="field">
              <label for="ask-name">
                <span>
                  Type <span class="mono">{name}</span> to continue
                </span>
              </label>
              <input
                id="ask-name"
                class="input mono"
                autocomplete="off"
                value={typed}
                onInput={event => setTyped(event.currentTarget.value)}
              />
            </div>
          )}
          {command !== undefined && <Command line={command} />}
        </div>
        <footer>
          <button type="button" class="btn" autofocus onClick={() => answer(undefined)}>
            Leave it
          </button>
          {instead !== undefined && (
            <Button
              onClick={() => {
                answer(undefined)
                instead.run()
              }}
            >
              {instead.label}
            </Button>
          )}
          <button type="submit" class={`btn ${isDanger ? 'btn-danger-main' : 'btn-main'}`} disabled={!isReady}>
            {verb}
          </button>
        </footer>
      </form>
    </dialog>
  )
}
