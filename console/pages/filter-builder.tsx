/** Adds a condition to a filter: a path, how it is compared, and a value. The filter stays JSON that `filterFrom` takes. */
import { useState } from 'preact/hooks'
import { Button } from '../parts/parts.tsx'

const operators = {
  is: 'is',
  $ne: 'is not',
  $gt: 'above',
  $gte: 'at least',
  $lt: 'below',
  $lte: 'at most',
  $in: 'one of',
  $startsWith: 'begins with',
  $contains: 'contains',
  $exists: 'is there',
} as const
type Operator = keyof typeof operators

export function FilterBuilder({ text, onText }: { text: string; onText: (text: string) => void }) {
  const [path, setPath] = useState('')
  const [operator, setOperator] = useState<Operator>('is')
  const [value, setValue] = useState('')
  const add = (): void => {
    onText(withCondition(text, path.trim(), operator, value.trim()))
    setPath('')
    setValue('')
  }
  return (
    <div class="builder" role="group" aria-label="Add a condition">
      <input
        class="input mono"
        aria-label="Path"
        placeholder="address.city"
        value={path}
        onInput={event => setPath(event.currentTarget.value)}
      />
      <select
        class="input pick"
        aria-label="Compared"
        value={operator}
        onChange={event => setOperator(event.currentTarget.value as Operator)}
      >
        {Object.entries(operators).map(([each, word]) => (
          <option key={each} value={each}>
            {word}
          </option>
        ))}
      </select>
      <input
        class="input mono"
        aria-label="Value"
        placeholder={operator === '$in' || operator === '$contains' ? 'a, b' : 'London'}
        value={value}
        onInput={event => setValue(event.currentTarget.value)}
      />
      <Button refused={path.trim() === '' ? 'it needs a path' : undefined} onClick={add}>
        Add
      </Button>
    </div>
  )
}

/** A filter that is not JSON is replaced. */
function withCondition(text: string, path: string, operator: Operator, value: string): string {
  let filter: Record<string, unknown> = {}
  try {
    filter = JSON.parse(text) as Record<string, unknown>
  } catch {}
  const operand =
    operator === '$exists'
      ? value !== 'false'
      : operator === '$in' || operator === '$contains'
        ? value.split(',').map(each => literal(each.trim()))
        : literal(value)
  return JSON.stringify({ ...filter, [path]: operator === 'is' ? operand : { [operator]: operand } })
}

/** `12`, `true` and `null` are what they say, everything else is text. */
function literal(text: string): unknown {
  if (/^(-?\d+(\.\d+)?|true|false|null|".*")$/.test(text)) return JSON.parse(text) as unknown
  return text
}
