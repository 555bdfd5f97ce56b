/** The reference of all commands as Markdown, generated from their descriptions. */
import { allCommands, globalOptions } from '../../src/cli/arguments.ts'
import type { Root } from '../../src/cli/command.ts'
import { argumentRow, optionRows, ownOptions, synonymsOf, usageOf } from '../../src/cli/help.ts'

export async function commandReference(root: Root): Promise<string> {
  const parts = [`${intro}\n\n## Options of all commands\n\n${list(optionRows(globalOptions))}`]
  const entries = await root.commands()
  let noun = ''
  for await (const { path, leaf } of allCommands(root)) {
    const [first = ''] = path
    const group = entries[first]!
    if (first !== noun) parts.push(`## ${first}\n\n${group.summary}.`, ...otherNames(root, first))
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

function otherNames(root: Root, noun: string): string[] {
  const names = synonymsOf(root, [noun]).map(([name, text]): [string, string] => [`${noun} ${name}`, text])
  return names.length === 0 ? [] : [`Other names:\n\n${list(names)}`]
}

function list(rows: readonly (readonly [string, string])[]): string {
  return rows.map(([name, text]) => `- \`${name}\` ${text}`).join('\n')
}

const intro = `# The command line

\`rillflow\` comes with the package: \`npx rillflow --help\`. This page is generated from the commands.

The location of the store is taken from options, then from the environment (\`DATABASE_URL\` or \`RILLFLOW_URL\`,
\`RILLFLOW_FOLDER\`, \`RILLFLOW_SCHEMA\`, \`RILLFLOW_CONFIG\`), then from \`rillflow.config.ts\`, \`.js\` or \`.mjs\` in the current
folder. Otherwise it is the embedded store in \`./.rillflow\`. If a store has tenants (\`tenancy\` in the configuration,
\`--tenancy schema\` or \`RILLFLOW_TENANCY\`), \`--tenant\` or \`RILLFLOW_TENANT\` names the tenant of a command; commands about all
tenants ignore \`RILLFLOW_TENANT\`. Node loads a configuration in TypeScript itself from 22.18 on; before that, install \`jiti\` in
the same project.

Only \`rillflow run\` and \`rillflow dev\` store the definitions of the configuration, as a program does when it opens the store
and starts a runner. All other commands use the definitions and store none of them. Commands that only show something change
nothing in the database and need only the right to select.

Data goes to stdout, everything else to stderr. With \`--json\` a command prints one JSON document, or NDJSON if it follows
something. A list is \`{ "items": […], "next": "…" }\`; \`--after\` with the value of \`next\` shows the next page. Colours and progress
bars appear only on a terminal (\`NO_COLOR\`, \`FORCE_COLOR\`). Destructive commands ask for confirmation on a terminal and need
\`--yes\` elsewhere; \`--dry-run\` only prints the action. The first Ctrl-C, SIGTERM or SIGHUP lets running work end, the second one
ends the process. A command without an end of its own, such as \`run\` or \`events tail --follow\`, then ends with 0.

| exit code | meaning                                             |
| --------- | --------------------------------------------------- |
| 0         | success                                             |
| 1         | failure                                             |
| 2         | wrong usage, or a configuration with nothing to run |
| 3         | a check found problems                              |
| 4         | the schema is newer than this version               |
| 130       | interrupted before the work was done                |

An error says what happened, what to try and its code; with \`--json\` it is one line of JSON on stderr:
\`{"error":{"code":"…","message":"…","try":"…"}}\`. \`--debug\` also prints the stack trace.`
