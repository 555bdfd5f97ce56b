/** A state with the event behind each field, and the lines that a version changed. */
import { useMemo } from 'preact/hooks'
import type { Blame } from '../../src/projections/states.ts'
import type { Json } from '../../src/server/api/contract.ts'
import { diffLines } from '../json/diff.ts'
import { nodeOf } from '../json/json.ts'
import { type Line, linesOf } from '../json/lines.ts'
import { Pieces } from '../json/view.tsx'
import { clockTime } from '../parts/format.ts'

type BlameByPath = Readonly<Record<string, Json<Blame>>>

interface BlameProps {
  state: unknown
  blame: BlameByPath
  /** The state before; undefined shows the state alone. */
  before: unknown
  version: number
  href: (version: number) => string
}

export function BlameTable({ state, blame, before, version, href }: BlameProps) {
  const lines = useMemo<readonly Line[]>(
    () => (before === undefined ? linesOf(nodeOf(state)) : diffLines(nodeOf(before), nodeOf(state)).lines),
    [state, before],
  )
  return (
    <div class="blame-scroll" tabIndex={0} role="group" aria-label="State">
      <table class="blame">
        <colgroup>
          <col class="w-28" />
          <col />
          <col class="w-36" />
          <col class="w-300" />
        </colgroup>
        <tbody>
          {lines.map(line => {
            const by = line.sign === 'del' ? undefined : blameOf(line, blame)
            return (
              <tr key={`${line.sign ?? ''}${line.path}`} class={line.sign ?? ''}>
                <td class="sign">{line.sign === 'add' ? '+' : line.sign === 'del' ? '−' : ''}</td>
                <td class="body json-tones">
                  {'  '.repeat(line.indent)}
                  <Pieces pieces={line.pieces} />
                </td>
                <td class="ver">{by?.version}</td>
                <td class="by cut">
                  {by !== undefined && (
                    <a
                      href={href(by.version)}
                      title={`version ${by.version}`}
                      aria-current={by.version === version ? 'true' : undefined}
                    >
                      <b>{by.type}</b> · {clockTime(by.createdAt)}
                      {by.userId === undefined ? '' : ` · ${by.userId}`}
                    </a>
                  )}
                </td>
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}

/** Of a container on one line, the latest event of its fields; of the first line of a longer one, none. */
function blameOf({ path, folds, pieces }: Line, blame: BlameByPath): Json<Blame> | undefined {
  if (
    path === '' ||
    path.endsWith('/') ||
    folds !== undefined ||
    (pieces.length > 0 && /^[{[]$/.test(pieces.at(-1)?.text ?? ''))
  )
    return undefined
  const wanted = dotted(path)
  const exact = blame[wanted]
  if (exact !== undefined) return exact
  const below = Object.entries(blame).filter(([name]) => name.startsWith(`${wanted}.`) || name.startsWith(`${wanted}[`))
  return below.map(([, by]) => by).sort((a, b) => b.version - a.version)[0]
}

/** `/items/0/price` as `items[0].price`. */
function dotted(path: string): string {
  return path
    .slice(1)
    .split('/')
    .map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((text, part) => (/^\d+$/.test(part) ? `${text}[${part}]` : text === '' ? part : `${text}.${part}`), '')
}
