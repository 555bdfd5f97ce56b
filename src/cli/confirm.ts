/**
 * Asks for confirmation before something is destroyed. It asks only on a terminal; elsewhere there is no one to answer, so `--yes`
 * is required there.
 */
import { createInterface } from 'node:readline/promises'
import type { Interrupt } from './interrupt.ts'
import { type Output, printable } from './output/output.ts'
import { NotConfirmed, WrongUsage } from './report-error.ts'

export interface Confirmation {
  /** Whether the line has `--yes`. */
  readonly isGiven: boolean
  readonly isDryRun: boolean
  /** The line to type again, without `--yes`. */
  readonly line: string
}

export interface Terminal {
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean }
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean }
  /** While a question is open, Ctrl-C goes to the question and not to the process. It is passed on to this. */
  readonly interrupt: Pick<Interrupt, 'signal' | 'interrupt'>
}

/** `action` completes "This will …". True if it may be done. */
export async function confirm(
  action: string,
  { isGiven, isDryRun, line }: Confirmation,
  out: Pick<Output, 'print'>,
  { stdin, stderr, interrupt }: Terminal,
): Promise<boolean> {
  if (isDryRun) {
    out.print({ dryRun: true, would: action }, () => `Would ${action}.`)
    return false
  }
  if (isGiven) return true
  if (!stdin.isTTY || !stderr.isTTY)
    throw new WrongUsage({
      reason: `This would ${action}. Without a terminal it must be confirmed with --yes`,
      hint: `${line} --yes`,
    })
  const prompt = createInterface({ input: stdin, output: stderr })
  prompt.on('SIGINT', interrupt.interrupt)
  try {
    const { signal } = interrupt
    const answer = await prompt
      .question(printable(`This will ${action}. Continue? [y/N] `), { signal })
      .catch((error: unknown) => {
        if (signal.aborted) throw error
        // Ctrl-D closes the input without an answer.
        return ''
      })
    if (/^y(es)?$/i.test(answer.trim())) return true
    throw new NotConfirmed({})
  } finally {
    prompt.close()
  }
}
