/** Proof: folds the stream again and compares the result with the stored document. */
import { useState } from 'preact/hooks'
import { request } from '../api/api.ts'
import { refusalOf } from '../api/reading.ts'
import { type Difference, diffLines } from '../json/diff.ts'
import { nodeOf } from '../json/json.ts'
import { DiffView } from '../json/view.tsx'
import { Button, Panel, State } from '../parts/parts.tsx'

export function Proof({ stream, projection }: { stream: string; projection: string }) {
  const [result, setResult] = useState<{ difference: Difference; version: number } | string | undefined>(undefined)
  const check = async (): Promise<void> => {
    try {
      const [stored, folded] = await Promise.all([
        request('GET /collections/:name/:id', { parameters: { name: projection, id: stream } }),
        request('GET /streams/:stream/states', { parameters: { stream }, query: { of: projection } }),
      ])
      const difference = diffLines(nodeOf(sorted(stored.data.data)), nodeOf(sorted(folded.data.state)))
      setResult({ difference, version: folded.data.version })
    } catch (error) {
      setResult(refusalOf(error).message)
    }
  }
  return (
    <Panel
      title="Fold again and compare"
      end={
        <Button small onClick={() => void check()}>
          {result === undefined ? 'Check' : 'Check again'}
        </Button>
      }
    >
      <div class="pad stack-2">
        {result === undefined ? (
          <p class="dim">
            Does the stored document{' '}
            <span class="mono">
              {projection}/{stream}
            </span>{' '}
            follow from its events? A check folds them anew and compares.
          </p>
        ) : typeof result === 'string' ? (
          <p class="err-text">{result}</p>
        ) : result.difference.changes === 0 ? (
          <State
            shape="done"
            tone="good"
            word={`${projection}/${stream} is equal to the fold of its ${result.version} events.`}
          />
        ) : (
          <>
            <State
              shape="failed"
              tone="bad"
              word={`${result.difference.changes} fields differ from the fold of its events.`}
            />
            <DiffView lines={result.difference.lines} />
          </>
        )}
      </div>
    </Panel>
  )
}

/** The database sorts the keys of a document, a fold does not. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, each]) => [key, sorted(each)]),
  )
}
