/** The reference of all commands as Markdown, generated from their definitions. */
import { globalOptions } from '../../src/cli/arguments/arguments.ts'
import { allCommands } from '../../src/cli/arguments/find.ts'
import type { Group } from '../../src/cli/command.ts'
import { argumentRow, optionRows, ownOptions, usageOf } from '../../src/cli/help.ts'

export async function commandReference(root: Group): Promise<string> {
  const parts = [`${intro}\n\n## Options of all commands\n\n${list(optionRows(globalOptions))}`]
  let noun = ''
  for (const { path, leaf } of allCommands(root)) {
    const [first = ''] = path
    const group = root.commands[first]!
    if (first !== noun) parts.push(`## ${first}\n\n${group.summary}.`)
    noun = first
    const command = await leaf.load()
    const own = optionRows(ownOptions(command))
    if (path.length > 1) parts.push(`### ${path.join(' ')}\n\n${leaf.summary}.`)
    if (command.description !== undefined) parts.push(command.description)
    parts.push(`\`\`\`sh\n${usageOf(command, path)}\n\n${command.examples.join('\n')}\n\`\`\``)
    const rows = [...command.arguments.map(argumentRow), ...own]
    if (rows.length > 0) parts.push(list(rows))
  }
  return `${parts.join('\n\n')}\n`
}

function list(rows: readonly (readonly [string, string])[]): string {
  return rows.map(([name, text]) => `- \`${name}\` ${text}`).join('\n')
}

const intro = `# The command line

\`rillflow\` comes with the package: \`npx rillflow --help\`. This page is made from the commands themselves.

Where the store is: flags, then the environment (\`DATABASE_URL\` or \`RILLFLOW_URL\`, \`RILLFLOW_FOLDER\`, \`RILLFLOW_SCHEMA\`,
\`RILLFLOW_CONFIG\`), then \`rillflow.config.ts\`, \`.js\` or \`.mjs\` in the current folder, then the embedded store in \`./.rillflow\`.
Of a store with tenants (\`tenancy\` in the configuration, \`--tenancy schema\` or \`RILLFLOW_TENANCY\`) \`--tenant\` says whose a command
is, or \`RILLFLOW_TENANT\`, which commands about all tenants do not mind.
A configuration in TypeScript is loaded by Node itself from 22.18 on; before that \`jiti\` must be installed beside it.

Data goes to stdout, everything else to stderr. With \`--json\` there is one document of JSON, or NDJSON from what follows
something; positions are text in it. Colours and progress bars are for terminals (\`NO_COLOR\`, \`FORCE_COLOR\`). What destroys
something asks on a terminal, and needs \`--yes\` elsewhere; \`--dry-run\` tells what would be done. The first Ctrl-C lets what is
under way end, the second ends the process.

| exit code | meaning                                             |
| --------- | --------------------------------------------------- |
| 0         | done                                                |
| 1         | failed                                              |
| 2         | wrong usage, or a configuration with nothing to run |
| 3         | a check found problems                              |
| 4         | the schema is newer than this version               |
| 130       | interrupted                                         |

An error says what happened, what to try and its code; with \`--json\` it is one line of JSON on stderr:
\`{"error":{"code":"…","message":"…","try":"…"}}\`. \`--debug\` adds where it came from.`
