#!/usr/bin/env node
/**
 * The command line: what a store's operator types, and what scripts call.
 *
 *     words ─► arguments/ find ─► parse ─► command.run ─► output/        data to stdout, the rest to stderr
 *                 │                           │
 *              help, completion            open: flags > environment > rillflow.config.ts > ./.rillflow
 *
 * `commands.ts` is the tree: nouns, and under each its verbs. A verb is a file that describes itself (what it takes, an
 * example) and runs; it is loaded when it is asked for, so help is quick and never touches a database.
 *
 * Guarantees:
 * - People get tables; with `--json` programs get one document, or NDJSON from what follows something.
 * - Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a check found problems, 4 the schema is newer than this version, 130
 *   interrupted. An error says what to try.
 * - Colours and bars are for terminals. Nothing asks where nobody can answer; what destroys something needs `--yes` there.
 * - The first Ctrl-C lets what is under way end, the second one ends the process.
 * - A command that runs code says so when there is none: it never does nothing in silence.
 *
 * What can fail: a reader that goes away (`| head`) ends the command quietly. An embedded store is one process's at a time;
 * a second one is told who has it.
 */
import { Console } from 'node:console'
import { readFileSync } from 'node:fs'
import { isRillflowError } from '../core/errors.ts'
import { findCommand, glanceAtGlobals, isGroup, parseLine } from './arguments.ts'
import type { Command, ExitCode, Invocation } from './command.ts'
import { root } from './commands/commands.ts'
import { listenToInterrupts } from './interrupt.ts'
import { openOutput, styleFor } from './output/output.ts'
import { reportError } from './report-error.ts'

/** Runs one line, and says how the process should end. */
async function main(words: readonly string[]): Promise<ExitCode> {
  // As other programs have it: help before what it is about.
  if (words[0] === 'help') return main([...words.slice(1), '--help'])
  const { json: isJson, color, debug: isDebug, help } = glanceAtGlobals(words)
  const { stdout, stderr, env } = process
  try {
    if (['--version', '-v', '-V', 'version'].includes(words[0] ?? '')) return printVersion()
    const { path, node, rest } = await findCommand(root, words)
    const style = styleFor({ stream: stdout, env, color })
    if (isGroup(node)) {
      if (!help) parseLine(nothing, path, rest)
      const { groupHelp } = await import('./help.ts')
      const isAsked = help || path.length === 0
      ;(isAsked ? stdout : stderr).write(`${await groupHelp(style, node, path)}\n`)
      return isAsked ? 0 : 2
    }
    const command = await node.load()
    if (help) {
      const { commandHelp } = await import('./help.ts')
      stdout.write(`${commandHelp(style, command, path, node.summary)}\n`)
      return 0
    }
    return await runCommand(command, path, rest)
  } catch (error) {
    return reportError(error, { stderr, env, color, isJson, isDebug })
  }
}

/** Before a noun or a verb there may be nothing but options of all commands. */
const nothing: Command = { arguments: [], options: {}, examples: [], run: async () => undefined }

async function runCommand(command: Command, path: readonly string[], rest: readonly string[]): Promise<ExitCode> {
  const { globals, arguments: taken, options } = parseLine(command, path, rest, process.env)
  const { placeOf, loadConfig } = await import('./config.ts')
  const out = openOutput({ ...process, isJson: globals.json, color: globals.color })
  const interrupt = listenToInterrupts(() => out.note('Ending … (press Ctrl-C again to stop at once)'))
  const giveConsoleBack = globals.json ? keepStdoutForData() : undefined
  const place = placeOf({ ...globals, memory: options.memory === true }, process.env)
  const closing: (() => Promise<void>)[] = []
  let loading: ReturnType<Invocation['config']> | undefined
  const config: Invocation['config'] = () => {
    loading ??= loadConfig(place, process.cwd())
    return loading
  }
  const invocation: Invocation = {
    ...{ arguments: taken, options, root, out, place, config },
    signal: interrupt.signal,
    async open(given = {}) {
      const { openConfigured } = await import('./open.ts')
      const { opened, close } = await openConfigured(await config(), place, given)
      closing.push(close)
      return opened
    },
    async confirm(deed) {
      const { confirm } = await import('./confirm.ts')
      // Words with options among them may hold a password, or need quotes.
      const isPlain = rest.every(word => /^[\w@%+=:,./][\w@%+=:,./-]*$/.test(word))
      const line = isPlain ? ['rillflow', ...path, ...rest].join(' ') : 'the same line with'
      const consent = { isGiven: options.yes === true, isDryRun: options.dryRun === true, line }
      const { stdin, stderr } = process
      return confirm(deed, consent, out, { stdin, stderr, interrupt })
    },
  }
  try {
    const code = await command.run(invocation)
    return code ?? (interrupt.signal.aborted ? 130 : 0)
  } catch (error) {
    const isAbort = isRillflowError(error, 'aborted') || (error instanceof Error && error.name === 'AbortError')
    if (interrupt.signal.aborted && isAbort) return 130
    throw error
  } finally {
    for (const close of closing) await close()
    interrupt.release()
    giveConsoleBack?.()
  }
}

/** What code of the configuration prints is for people: a program that reads JSON must not find it there. */
function keepStdoutForData(): () => void {
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

// Whoever reads may leave early, as `head` does: that is no failure of ours. A full disk is.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
    const { stderr, env } = process
    process.exit(
      stream === stderr ? 1 : reportError(error, { stderr, env, color: undefined, isJson: false, isDebug: false }),
    )
  })
process.exitCode = await main(process.argv.slice(2))
