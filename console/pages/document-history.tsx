/** The versions of a document as differences: look at one as it was, or bring it back as a new version. */
import { refusedFor } from '../api/api.ts'
import type { Reading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { diffLines } from '../json/diff.ts'
import { nodeOf } from '../json/json.ts'
import { DiffView } from '../json/view.tsx'
import { exactTime, plural, relative } from '../parts/format.ts'
import { Button, Panel } from '../parts/parts.tsx'
import type { Address } from '../shell/where.ts'

type Version = AnswerOf<'GET /collections/:name/:id/history'>['items'][number]

interface HistoryProps {
  of: Reading<AnswerOf<'GET /collections/:name/:id/history'>>
  address: Address
  onRevert: (version: Version) => void
}

export function DocumentHistory({ of, address, onRevert }: HistoryProps) {
  const versions = of.data?.items ?? []
  if (of.error !== undefined || versions.length < 2) return null
  const newest = versions.at(-1)?.version
  return (
    <Panel title="History" sub={plural(versions.length, 'version')}>
      <ul class="rows">
        {[...versions].reverse().map((each, index, list) => {
          const before = list[index + 1]
          return (
            <li key={each.version}>
              <details>
                <summary class="row version-row" title={exactTime(each.updatedAt)}>
                  <b class="medium">Version {each.version}</b>
                  <span class="faint">
                    {relative(each.updatedAt)}
                    {each.updatedBy === undefined ? '' : ` by ${each.updatedBy}`}
                    {each.data === null ? ', deleted' : ''}
                  </span>
                </summary>
                <DiffView lines={diffLines(nodeOf(before?.data ?? null), nodeOf(each.data)).lines} />
                <div class="pad actions">
                  <a class="btn btn-small" href={address.with({ version: each.version, at: undefined })}>
                    As it was
                  </a>
                  <Button
                    small
                    refused={
                      each.version === newest
                        ? 'it is the newest'
                        : each.data === null
                          ? 'it was deleted then'
                          : refusedFor('admin')
                    }
                    onClick={() => onRevert(each)}
                  >
                    Bring it back…
                  </Button>
                </div>
              </details>
            </li>
          )
        })}
      </ul>
    </Panel>
  )
}
