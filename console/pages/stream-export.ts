/** The events of a stream as text: lines for `rillflow events import`, or the beginning of a test. */
import type { StreamEvent } from './stream-event.ts'

/** A line for each event, as `rillflow events export` writes them. */
export function asLines(events: readonly StreamEvent[]): string {
  return `${events.map(event => JSON.stringify(event)).join('\n')}\n`
}

/** `specify(order).given([…]).when(…)`: the history of a test of the definition that folds the stream. */
export function asTest(events: readonly StreamEvent[], folded: string | undefined): string {
  const given = events.map(({ type, data }) => `    events.create('${type}', ${JSON.stringify(data)}),`).join('\n')
  return `specify(${folded ?? 'order'})\n  .given([\n${given}\n  ])\n  .when(command)\n  .expect([])\n`
}

export function download(name: string, text: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/x-ndjson' }))
  link.download = name
  link.click()
  URL.revokeObjectURL(link.href)
}
