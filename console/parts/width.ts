/** The width of the place of a drawing, so that its text keeps its size. */
import { useLayoutEffect, useState } from 'preact/hooks'

/** Give the first to the place as its `ref`. */
export function useWidth(initial: number): [place: (box: HTMLElement | null) => void, width: number] {
  const [box, setBox] = useState<HTMLElement | null>(null)
  const [width, setWidth] = useState(initial)
  useLayoutEffect(() => {
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
  }, [box])
  return [setBox, width]
}
