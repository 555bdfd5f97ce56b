/** Waits until a consumer has reached a position, as `store.consumers.waitFor` does, and says how long it took or what is missing. */
import { useState } from 'preact/hooks'
import { request } from '../api/api.ts'
import { refusalOf } from '../api/reading.ts'
import { Command } from '../parts/copy.tsx'
import { duration } from '../parts/format.ts'
import { Button, Panel, State } from '../parts/parts.tsx'

export function WaitPanel({ name, head }: { name: string; head: number }) {
  const [text, setText] = useState('')
  const [isBusy, setBusy] = useState(false)
  const [answer, setAnswer] = useState<{ isReached: boolean; words: string } | undefined>(undefined)
  const position = text.trim() === '' ? head : Number(text.replace('#', ''))
  const isNumber = Number.isSafeInteger(position) && position >= 0
  const wait = async (): Promise<void> => {
    setBusy(true)
    try {
      const { data } = await request('GET /consumers/:name/wait', { parameters: { name }, query: { position } })
      setAnswer({ isReached: true, words: `#${data.position} is applied, after ${duration(data.waitedMs)}.` })
    } catch (error) {
      setAnswer({ isReached: false, words: refusalOf(error).message })
    }
    setBusy(false)
  }
  return (
    <Panel title="Wait for a position">
      <form
        class="pad stack-2"
        onSubmit={event => {
          event.preventDefault()
          void wait()
        }}
      >
        <div class="actions">
          <input
            class="input mono w-112"
            aria-label="Position"
            placeholder={`#${head}`}
            value={text}
            onInput={event => setText(event.currentTarget.value)}
          />
          <Button type="submit" busy={isBusy} refused={isNumber ? undefined : 'a position is a number'}>
            {isBusy ? 'Waits…' : 'Wait'}
          </Button>
        </div>
        {answer !== undefined &&
          (answer.isReached ? (
            <State shape="done" tone="good" word={answer.words} />
          ) : (
            <p class="err-text">{answer.words}</p>
          ))}
        <Command line={`rillflow consumers wait ${name}${text === '' || !isNumber ? '' : ` ${position}`}`} />
      </form>
    </Panel>
  )
}
