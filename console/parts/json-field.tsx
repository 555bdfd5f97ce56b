/** A field for JSON: says line and column of a fault. The editor with colours is loaded where much is edited. */
import { useId } from 'preact/hooks'
import { JsonFault, readJson } from '../json/json.ts'
import { Shape } from './icon.tsx'

/** The value of the text; undefined if it is not JSON. */
export function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    return undefined
  }
}

/** Where the text stops being JSON, in words. */
export function faultOf(text: string): string | undefined {
  try {
    readJson(text)
    return undefined
  } catch (error) {
    return error instanceof JsonFault ? `line ${error.line}, column ${error.column}: ${error.message}` : String(error)
  }
}

export function JsonField({
  label,
  text,
  onText,
  rows = 8,
}: {
  label: string
  text: string
  onText: (text: string) => void
  rows?: number
}) {
  const id = useId()
  const fault = faultOf(text)
  return (
    <div class="field">
      <label for={id}>
        {label} <span class="faint">JSON</span>
      </label>
      <textarea
        id={id}
        class="input"
        rows={rows}
        spellcheck={false}
        value={text}
        aria-invalid={fault !== undefined}
        aria-describedby={`${id}-fault`}
        onInput={event => onText(event.currentTarget.value)}
      />
      <span class="err" id={`${id}-fault`}>
        {fault !== undefined && (
          <>
            <Shape name="failed" />
            {fault}
          </>
        )}
      </span>
    </div>
  )
}
