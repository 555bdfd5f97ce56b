/** Asking before something is destroyed. Only on a terminal: everywhere else nobody could answer. */
import { createInterface } from 'node:readline/promises'
import type { Interrupt } from './interrupt.ts'
import type { Output } from './output/output.ts'
import { NotConfirmed, WrongUsage } from './report-error.ts'

export interface Consent {
  readonly isGiven: boolean
  readonly isDryRun: boolean
  /** What to type again, before `--yes`. */
  readonly line: string
}

/** Whoever can be asked. */
export interface Terminal {
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean }
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean }
  /** A question takes Ctrl-C from the process, so it hands it on. */
  readonly interrupt: Pick<Interrupt, 'signal' | 'hear'>
}

/** `deed` completes "This will …". True if it may be done. */
export async function confirm(
  deed: string,
  { isGiven, isDryRun, line }: Consent,
  out: Pick<Output, 'print'>,
  { stdin, stderr, interrupt }: Terminal,
): Promise<boolean> {
  if (isDryRun) {
    out.print({ dryRun: true, would: deed }, () => `Would ${deed}.`)
    return false
  }
  if (isGiven) return true
  if (!stdin.isTTY || !stderr.isTTY)
    throw new WrongUsage({ reason: `This would ${deed}, and nobody is here to be asked`, hint: `${line} --yes` })
  const prompt = createInterface({ input: stdin, output: stderr })
  prompt.on('SIGINT', interrupt.hear)
  try {
    const { signal } = interrupt
    const answer = await prompt.question(`This will ${deed}. Go on? [y/N] `, { signal }).catch((error: unknown) => {
      if (signal.aborted) throw error
      // The end of what is typed, Ctrl-D, is no yes either.
      return ''
    })
    if (/^y(es)?$/i.test(answer.trim())) return true
    throw new NotConfirmed({})
  } finally {
    prompt.close()
  }
}
