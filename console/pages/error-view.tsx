/** An error: its message, the frames of the user's own code first, and its causes. */

export interface ShownError {
  readonly name?: string | undefined
  readonly message: string
  readonly code?: string | undefined
  readonly stack?: string | undefined
  readonly cause?: unknown
}

export function ErrorView({ error }: { error: ShownError }) {
  const frames = framesOf(error.stack)
  const own = frames.filter(frame => !/\(?node:|node_modules|\/dist\/(?:chunks|cli|index)|new Promise/.test(frame))
  const hidden = frames.length - own.length
  const cause = error.cause as ShownError | undefined
  return (
    <>
      <p class="err-head">{error.message}</p>
      <pre class="trace" tabIndex={0}>
        <b>{error.name ?? 'Error'}</b> {error.code}
        {own.slice(0, 12).map(frame => (
          <span class="own" key={frame}>{`\n  ${frame}`}</span>
        ))}
        {hidden > 0 && `\n  ${hidden} ${hidden === 1 ? 'frame' : 'frames'} of rillflow and Node`}
      </pre>
      {typeof cause === 'object' && cause !== null && typeof cause.message === 'string' && (
        <div class="cause">
          <span class="faint mini">Caused by</span>
          <ErrorView error={cause} />
        </div>
      )}
    </>
  )
}

function framesOf(stack: string | undefined): string[] {
  return (stack ?? '')
    .split('\n')
    .map(line => line.trim())
    .filter(line => line.startsWith('at '))
}
