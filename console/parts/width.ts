/** The width of a place of a drawing, so that its text keeps its size. */
import type { RefObject } from 'preact'
import { useLayoutEffect, useState } from 'preact/hooks'

export function useWidth(place: RefObject<HTMLElement | null>, initial: number): number {
  const [width, setWidth] = useState(initial)
  useLayoutEffect(() => {
    const box = place.current
    if (box === null) return
    const measure = (): void => {
      const { paddingLeft, paddingRight } = getComputedStyle(box)
      const room = box.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight)
      setWidth(Math.max(560, Math.floor(room)))
    }
    const resized = new ResizeObserver(measure)
    resized.observe(box)
    measure()
    return () => resized.disconnect()
  }, [place])
  return width
}
