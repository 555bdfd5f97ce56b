/** Pages of the console that are open in browsers: each follows the live feed and asks again for the overview. */
import { answer } from '../harness/program.ts'

export interface LivePagesInput {
  readonly url: string
  readonly pages: number
  readonly ms: number
}

export interface LivePagesAnswer {
  /** Messages of the feed that arrived at all pages. */
  readonly messages: number
}

const askMs = 4_000

answer(async ({ url, pages, ms }: LivePagesInput): Promise<LivePagesAnswer> => {
  const ended = AbortSignal.timeout(ms)
  const read = await Promise.all(Array.from({ length: pages }, () => openPage(url, ended)))
  return { messages: read.reduce((sum, each) => sum + each, 0) }
})

async function openPage(url: string, ended: AbortSignal): Promise<number> {
  const timer = setInterval(() => void fetch(`${url}/api/v1/overview`).then(each => each.text()), askMs)
  let messages = 0
  try {
    const { body } = await fetch(`${url}/api/v1/live?topics=figures,events,activity,operations`, { signal: ended })
    const text = new TextDecoder()
    for await (const chunk of body as unknown as AsyncIterable<Uint8Array>)
      messages += text.decode(chunk).split('\nevent: ').length
  } catch (error) {
    if (!ended.aborted) throw error
  } finally {
    clearInterval(timer)
  }
  return messages
}
