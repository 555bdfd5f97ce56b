/** Waits for what the code under test does by itself. Nothing here waits a fixed time: a test never has to be slow. */

export interface WaitOptions {
  /** Give up after this long. Generous, because it is only reached when the test fails. */
  deadlineMs?: number
  /** How often to look; seldom where a look is in the way of what is waited for. Default 5. */
  everyMs?: number
  /** What is waited for, for the message. */
  what?: string
}

/** Resolves when the condition holds; an error it throws counts as not yet, until the deadline. */
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
