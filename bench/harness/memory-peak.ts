/** Peak memory of a process while it reads. Sampled between events, so that a busy loop cannot hide a peak. */
export interface MemoryPeak {
  /** Of the whole process, in MB. */
  readonly rss: number
  /** Of the heap, in MB: the highest in the first and in the second half. Flat memory has both alike. */
  readonly heapEarly: number
  readonly heapLate: number
}

export interface MemoryWatch {
  /** To be called once per event; samples every 1000 events. */
  countEvent(): void
  peak(): MemoryPeak
}

const MB = 1024 * 1024

export function watchMemory(): MemoryWatch {
  const heaps: number[] = []
  let events = 0
  return {
    countEvent() {
      if (events++ % 1000 === 0) heaps.push(process.memoryUsage().heapUsed / MB)
    },
    peak() {
      const half = heaps.length >> 1
      const max = (list: number[]): number => Math.max(0, ...list)
      const rss = process.resourceUsage().maxRSS / 1024
      return { rss, heapEarly: max(heaps.slice(0, half)), heapLate: max(heaps.slice(half)) }
    },
  }
}
