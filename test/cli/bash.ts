import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Folder } from './shop.ts'

/** The completions of bash for each line, with the cursor at its end. */
export async function completedBy(
  script: string,
  lines: readonly string[],
  { path, cache }: Pick<Folder, 'path' | 'cache'>,
): Promise<Record<string, string[]>> {
  const ask = `
    source /dev/stdin <<< "$1"
    [[ $(complete -p rillflow) == "complete -o default -F _rillflow rillflow" ]] || exit 1
    COMP_WORDBREAKS=$' \\t\\n"\\'@><=;|&(:'
    for line in "\${@:2}"; do
      COMP_LINE="$line" COMP_POINT=\${#line}
      _rillflow
      echo "\${COMPREPLY[*]}"
    done`
  const { stdout } = await promisify(execFile)('bash', ['-c', ask, 'bash', script, ...lines], {
    ...{ cwd: path, env: { ...process.env, XDG_CACHE_HOME: cache } },
  })
  const completions = stdout.split('\n').map(line => line.split(' ').filter(word => word !== ''))
  return Object.fromEntries(lines.map((line, at) => [line, completions[at]!]))
}
