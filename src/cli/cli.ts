#!/usr/bin/env node
/**
 * The command line, for operators and for scripts.
 *
 *     words ──► findCommand ──► parseLine ──► command.run ──► output/       data to stdout, the rest to stderr
 *                  │                             │
 *               help, completion              open: flags, environment, rillflow.config.ts, ./.rillflow
 *
 * `commands/commands.ts` is the tree: nouns, and the verbs of each. A noun is one file; it describes its commands and runs
 * them. It is loaded when a line asks for it, so help is quick and never opens a store.
 *
 * Guarantees:
 * - People get tables. With `--json` programs get one JSON document, or NDJSON from a command that follows something.
 * - Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a check found problems, 4 the schema is newer than this version, 130
 *   interrupted before the work was done. An error says what to try.
 * - Colours and progress bars appear only on a terminal. Destructive commands ask for confirmation on a terminal and need
 *   `--yes` elsewhere.
 * - The first Ctrl-C, SIGTERM or SIGHUP lets running work end, the second one ends the process. A command that runs until then
 *   ends with 0; one whose work it cuts off rejects with the abort, and ends with 130.
 * - A command that runs code fails if there is no code: it never does nothing in silence.
 *
 * What can fail: a reader of the output that closes early (`| head`) ends the command quietly. An embedded store belongs to one
 * process at a time; a second one gets an error that names the first.
 */
import { Console } from 'node:console'
import { readFileSync } from 'node:fs'
import { isRillflowError } from '../core/errors.ts'
import { findCommand, isGroup, parseLine, peekGlobals } from './arguments.ts'
import type { Command, ExitCode, Invocation } from './command.ts'
import { root } from './commands/commands.ts'
import { listenToInterrupts } from './interrupt.ts'
import { openOutput, styleFor } from './output/output.ts'
import { reportError } from './report-error.ts'

/** Runs one line, and returns the exit code of the process. */
async function main(words: readonly string[]): Promise<ExitCode> {
  // As in other programs, help may come first: `help events` is `events --help`.
  if (words[0] === 'help') return main([...words.slice(1), '--help'])
  const { json: isJson, color, debug: isDebug, help } = peekGlobals(words)
  const { stdout, stderr, env } = process
  try {
    if (['--version', '-v', '-V', 'version'].includes(words[0] ?? '')) return printVersion()
    const { path, entry, rest } = await findCommand(root, words)
    const style = styleFor({ stream: stdout, env, color })
    if (isGroup(entry)) {
      if (!help) parseLine(noCommand, path, rest)
      const { groupHelp } = await import('./help.ts')
      const isWanted = help || path.length === 0
      ;(isWanted ? stdout : stderr).write(`${await groupHelp(style, root, entry, path)}\n`)
      return isWanted ? 0 : 2
    }
    const command = await entry.load()
    if (help) {
      const { commandHelp } = await import('./help.ts')
      stdout.write(`${commandHelp(style, command, path, entry.summary)}\n`)
      return 0
    }
    return await runCommand(command, path, rest)
  } catch (error) {
    return reportError(error, { stderr, env, color, isJson, isDebug })
  }
}

/** A line without a command may have only the options of all commands. */
const noCommand: Command = { arguments: [], options: {}, examples: [], run: async () => undefined }

async function runCommand(command: Command, path: readonly string[], rest: readonly string[]): Promise<ExitCode> {
  const { globals, arguments: values, options } = parseLine(command, path, rest, process.env)
  const { locationFrom, loadConfig } = await import('./config.ts')
  const out = openOutput({ ...process, isJson: globals.json, color: globals.color })
  const interrupt = listenToInterrupts(() => out.note('Stopping … (press Ctrl-C again to stop immediately)'))
  const restoreConsole = globals.json ? sendConsoleToStderr() : undefined
  const location = locationFrom({ ...globals, memory: options.memory === true }, process.env)
  const stores: { close(): Promise<void> }[] = []
  let loading: ReturnType<Invocation['config']> | undefined
  const config: Invocation['config'] = () => {
    loading ??= loadConfig(location, process.cwd())
    return loading
  }
  const invocation: Invocation = {
    ...{ arguments: values, options, root, out, location, config },
    signal: interrupt.signal,
    async open(openOptions = {}) {
      const { openConfigured } = await import('./open.ts')
      const { opened, close } = await openConfigured(await config(), location, openOptions)
      stores.push({ close })
      return opened
    },
    async confirm(action) {
      const { confirm } = await import('./confirm.ts')
      // The line is repeated only if it has no options: they may hold a password, or need quotes.
      const isPlain = rest.every(word => /^[\w@%+=:,./][\w@%+=:,./-]*$/.test(word))
      const line = isPlain ? ['rillflow', ...path, ...rest].join(' ') : 'the same line with'
      const confirmation = { isGiven: options.yes === true, isDryRun: options.dryRun === true, line }
      const { stdin, stderr } = process
      return confirm(action, confirmation, out, { stdin, stderr, interrupt })
    },
  }
  try {
    const code = await command.run(invocation)
    return code ?? 0
  } catch (error) {
    const isAbort = isRillflowError(error, 'aborted') || (error instanceof Error && error.name === 'AbortError')
    if (interrupt.signal.aborted && isAbort) return 130
    throw error
  } finally {
    for (const store of stores) await store.close()
    interrupt.release()
    restoreConsole?.()
  }
}

/** With --json stdout has only data, so what the code of a configuration prints goes to stderr. */
function sendConsoleToStderr(): () => void {
  const { console } = globalThis
  globalThis.console = new Console(process.stderr)
  return () => {
    globalThis.console = console
  }
}

function printVersion(): ExitCode {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  process.stdout.write(`rillflow ${(JSON.parse(text) as { version: string }).version}\n`)
  return 0
}

// A reader of the output may close early, as `head` does. That is not a failure; a full disk is.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
    const { stderr, env } = process
    process.exit(
      stream === stderr ? 1 : reportError(error, { stderr, env, color: undefined, isJson: false, isDebug: false }),
    )
  })
process.exitCode = await main(process.argv.slice(2))
