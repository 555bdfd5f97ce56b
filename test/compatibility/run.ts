/**
 * Tries the packed library with other databases, poolers, runtimes, compilers, bundlers, test runners and package managers,
 * and writes what was seen into `docs/compatibility.md`.
 *
 *     npm run test:compatibility                       all of them: some minutes, and downloads from npm
 *     npm run test:compatibility -- Node Deno          only those with one of these words in their name; writes nothing
 *
 * Everything is installed into a temporary folder. A combination that cannot be tried on this machine says so in the table.
 */
import { execFileSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { type Case, cases, NotRun } from './cases.ts'
import { openServers } from './servers.ts'
import { openWorkspace } from './workspace.ts'

interface Row {
  readonly group: string
  readonly name: string
  readonly version: string
  readonly result: 'yes' | 'refused' | 'no' | 'not run'
  readonly note: string
}

const page = resolve(import.meta.dirname, '../../docs/compatibility.md')
const words = process.argv.slice(2).map(word => word.toLowerCase())
const chosen = cases.filter(({ name }) => words.length === 0 || words.some(word => name.toLowerCase().includes(word)))

await using workspace = await openWorkspace()
await using servers = openServers(workspace)
const rows: Row[] = []
for (const each of chosen) {
  const row = await tryOut(each)
  rows.push(row)
  console.log([row.result.padEnd(8), row.name.padEnd(26), row.version.padEnd(10), row.note].join(' '))
}
if (words.length === 0) {
  await writeFile(page, replaceTables(await readFile(page, 'utf8'), rows))
  execFileSync('npx', ['biome', 'format', '--write', page])
}
process.exitCode = rows.some(row => row.result === 'no') ? 1 : 0

async function tryOut({ group, name, run }: Case): Promise<Row> {
  try {
    const { version, note = '', isRefused = false } = await run(workspace, servers)
    return { group, name, version, result: isRefused ? 'refused' : 'yes', note }
  } catch (error) {
    const note = (error as Error).message.replaceAll(/\s+/g, ' ')
    return { group, name, version: '', result: error instanceof NotRun ? 'not run' : 'no', note }
  }
}

/** Everything between the two marks of the page is generated. */
function replaceTables(text: string, all: readonly Row[]): string {
  const groups = [...new Set(all.map(row => row.group))]
  const tables = groups.map(group => {
    const lines = all
      .filter(row => row.group === group)
      .map(({ name, version, result, note }) => `| ${name} | ${version} | ${result} | ${note.replaceAll('|', '\\|')} |`)
    return [`## ${group}`, '', '| | tried | works | |', '| --- | --- | --- | --- |', ...lines].join('\n')
  })
  const [before, after] = [text.split('<!-- generated -->')[0], text.split('<!-- end of generated -->')[1]]
  return `${before}<!-- generated -->\n\n${tables.join('\n\n')}\n\n<!-- end of generated -->${after}`
}
