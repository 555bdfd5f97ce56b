/** Waits for an effect of the code under test. Nothing here waits a fixed time: a test never has to be slow. */

export interface WaitOptions {
  /** Give up after this long. Generous, because it is only reached when the test fails. */
  deadlineMs?: number
  /** How often to check; rarely if the check slows down the code under test. Default 5. */
  everyMs?: number
  /** The condition in words, for the message. */
  what?: string
}

/** Resolves when the condition holds; an error that it throws counts as not yet, until the deadline. */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  { deadlineMs = 60_000, everyMs = 5, what = 'the condition' }: WaitOptions = {},
): Promise<void> {
  const deadline = Date.now() + deadlineMs
  for (;;) {
    let cause: unknown
    try {
      if (await condition()) return
    } catch (error) {
      cause = error
    }
    if (Date.now() > deadline) throw new Error(`${what} did not come true within ${deadlineMs} ms`, { cause })
    await new Promise(resolve => setTimeout(resolve, everyMs))
  }
}
