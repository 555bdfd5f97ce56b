/** A call that runs at most once in a while, with the last request never lost: live messages come in bursts. */
import { useEffect, useMemo, useRef } from 'preact/hooks'

export function useThrottled(run: () => void, everyMs: number): () => void {
  const latest = useRef(run)
  latest.current = run
  const state = useMemo(() => ({ at: 0, timer: undefined as ReturnType<typeof setTimeout> | undefined }), [])
  useEffect(() => () => clearTimeout(state.timer), [state])
  return useMemo(
    () => () => {
      if (state.timer !== undefined) return
      const wait = Math.max(0, state.at + everyMs - Date.now())
      state.timer = setTimeout(() => {
        state.timer = undefined
        state.at = Date.now()
        latest.current()
      }, wait)
    },
    [state, everyMs],
  )
}
