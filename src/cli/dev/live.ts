/** What happens, as it happens: every event, what fails, and now and then how it goes as a whole. */
import { isRillflowError } from '../../core/errors.ts'
import { sleep } from '../../core/lifecycle.ts'
import type { Invocation, Opened } from '../command.ts'
import { eventLine } from '../events/event-line.ts'
import { count, digits } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { readStatus, type Status } from '../status.ts'
import { activityLine } from '../workflows/watch.ts'

type Around = Pick<Invocation, 'out' | 'signal'>

const figuresMs = 5_000

/** Until the signal aborts. */
export async function showLive(opened: Opened, after: number, around: Around): Promise<void> {
  await Promise.all(
    [showEvents(opened, after, around), showFailures(opened, around), showFigures(opened, around)].map(showing =>
      showing.catch((error: unknown) => {
        if (!(around.signal.aborted && isRillflowError(error, 'aborted'))) throw error
      }),
    ),
  )
}

async function showEvents({ store }: Opened, after: number, { out, signal }: Around): Promise<void> {
  for await (const event of store.events.tail({ after, signal })) out.line({ event }, style => eventLine(style, event))
}

async function showFailures({ store }: Opened, { out, signal }: Around): Promise<void> {
  for await (const activity of store.workflows.watch({ kinds: ['failed', 'parked', 'cancelled'], signal }))
    out.line({ activity }, style => `${style.colour.red('!'.padStart(6))}  ${activityLine(style, activity)}`)
}

async function showFigures(opened: Opened, { out, signal }: Around): Promise<void> {
  for (;;) {
    await sleep(figuresMs, { signal })
    const status = await readStatus(opened)
    out.line({ status }, style => figuresLine(style, status))
  }
}

/** `42 events · orders at #42 · 9 workflows settled, 1 active · 2 dead letters` */
function figuresLine({ colour }: Style, { log, consumers, workflows, deadLetters }: Status): string {
  const letters = count(deadLetters.open, 'dead letter')
  const told = [
    `${digits(log.head)} positions`,
    ...consumers.map(({ name, checkpoint }) => `${name} at #${checkpoint ?? 0}`),
    `${count(workflows.settled, 'workflow')} settled, ${digits(workflows.active)} active`,
    deadLetters.open === 0 ? letters : colour.red(letters),
  ]
  return colour.dim(`${'–'.padStart(6)}  ${told.join(' · ')}`)
}
