/** Shows JSON with its exact numbers: fold, copy a value, a window of lines if there are many. */
import { useMemo, useState } from 'preact/hooks'
import { copyText } from '../parts/copy.tsx'
import { JsonFault, type Node, nodeOf, readJson } from './json.ts'
import { type Line, linesOf, oneLine, type Piece } from './lines.ts'

/** `text` wins over `value`: it has the numbers as they are stored. */
export function JsonView({
  value,
  text,
  flat = false,
}: {
  value?: unknown
  text?: string | undefined
  flat?: boolean
}) {
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set())
  const [limit, setLimit] = useState(pageOfLines)
  const node = useMemo(() => nodeFrom(value, text), [value, text])
  if (typeof node === 'string')
    return (
      <pre class={`json ${flat ? 'flat' : ''}`} tabIndex={0}>
        {node.slice(0, 65_536)}
      </pre>
    )
  const lines = linesOf(node, folded)
  const toggle = (path: string): void => {
    const next = new Set(folded)
    if (!next.delete(path)) next.add(path)
    setFolded(next)
  }
  return (
    <>
      <pre class={`json ${flat ? 'flat' : ''}`} tabIndex={0}>
        {lines.slice(0, limit).map(line => (
          <ViewLine key={line.path} line={line} onFold={toggle} isFolded={folded.has(line.path)} />
        ))}
      </pre>
      {lines.length > limit && (
        <button type="button" class="btn btn-small btn-bare" onClick={() => setLimit(limit + pageOfLines)}>
          Show more of {lines.length.toLocaleString('en-GB')} lines
        </button>
      )}
    </>
  )
}

const pageOfLines = 500

function ViewLine(props: { line: Line; isFolded: boolean; onFold: (path: string) => void }) {
  const { line, isFolded, onFold } = props
  return (
    <span class="jl">
      {'  '.repeat(line.indent)}
      {line.folds !== undefined && line.indent > 0 ? (
        <button
          type="button"
          class="fold"
          aria-expanded={!isFolded}
          aria-label={`${line.path.slice(1)}, ${line.folds} entries`}
          onClick={() => onFold(line.path)}
        >
          <Pieces pieces={line.pieces} />
        </button>
      ) : (
        <Pieces pieces={line.pieces} />
      )}
      {'\n'}
    </span>
  )
}

export function Pieces({ pieces }: { pieces: readonly Piece[] }) {
  return (
    <>
      {pieces.map((piece, index) => {
        const text = piece.isMarked === true ? <mark>{piece.text}</mark> : piece.text
        return (
          <span key={index} class={piece.tone}>
            {text}
          </span>
        )
      })}
    </>
  )
}

/** The data of an event in a row of a table. */
export function OneLine({ value }: { value: unknown }) {
  return <Pieces pieces={oneLine(value)} />
}

/** The signed lines of a diff. */
export function DiffView({ lines }: { lines: readonly Line[] }) {
  return (
    <div class="diff diff-pad json-tones">
      {lines.map(line => (
        <span key={`${line.sign ?? ''}${line.path}`} class={line.sign ?? 'same'}>
          {line.sign !== undefined && <span class="sr">{line.sign === 'add' ? 'now ' : 'was '}</span>}
          {'  '.repeat(line.indent)}
          <Pieces pieces={line.pieces} />
        </span>
      ))}
    </div>
  )
}

export function copyJson(value: unknown, text?: string): void {
  copyText(text ?? JSON.stringify(value, null, 2))
}

/** The text itself if it is not JSON, or nests too deep to be laid out. */
function nodeFrom(value: unknown, text: string | undefined): Node | string {
  try {
    return text === undefined ? nodeOf(value) : readJson(text)
  } catch (error) {
    if (error instanceof JsonFault) return text ?? JSON.stringify(value)
    return text ?? String(value)
  }
}
