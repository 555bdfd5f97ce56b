/** Loading, failed and empty, where the data would be. Old data stays, with its time. */
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Reading } from '../api/reading.ts'
import { relative, time } from './format.ts'
import { Shape } from './icon.tsx'
import { Button } from './parts.tsx'

/** Nothing for 200 ms, then bars in the shape of the rows to come. */
export function Bones({ rows = 6 }: { rows?: number }) {
  const [isLate, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200)
    return () => clearTimeout(timer)
  }, [])
  if (!isLate) return <div class="bones-place" />
  return (
    <div class="bones-place bones is-loading" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, index) => (
        <span class="bone-line" key={index}>
          <span class={`bone b${(index % 4) + 1}`} />
        </span>
      ))}
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children !== undefined && <div class="stack-2">{children}</div>}
    </div>
  )
}

/** The fault, the next step, and the code. */
export function Failed({ reading }: { reading: Reading<unknown> }) {
  const { error, at, reload } = reading
  if (error === undefined) return null
  return (
    <div class="notice" role="alert">
      <Shape name="failed" tone="tone-bad" />
      <div class="grow">
        <p class="medium">{error.message}</p>
        {at !== undefined && (
          <p>
            The data below is from {time(at)}, {relative(at)}.
          </p>
        )}
        <p class="mono faint">{error.code}</p>
      </div>
      <div class="actions">
        <Button small onClick={reload}>
          Try now
        </Button>
      </div>
    </div>
  )
}

interface ShowProps<T> {
  of: Reading<T>
  rows?: number
  children: (data: T) => ComponentChildren
}

/** The data as soon as it is there; its error above it, if the newest try failed. */
export function Show<T>({ of, rows, children }: ShowProps<T>) {
  if (of.data === undefined)
    return of.error === undefined ? (
      <Bones rows={rows ?? 6} />
    ) : (
      <div class="pad">
        <Failed reading={of} />
      </div>
    )
  return (
    <>
      {of.error !== undefined && (
        <div class="pad">
          <Failed reading={of} />
        </div>
      )}
      {children(of.data)}
    </>
  )
}
