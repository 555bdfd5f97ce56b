/** How much memory a process takes while it reads. Looked at between events, so a busy loop hides nothing. */
export interface MemoryPeak {
  /** Of the whole process, in MB. */
  readonly rss: number
  /** Of the heap, in MB: the highest in the first and in the second half. Flat memory has both alike. */
  readonly heapEarly: number
  readonly heapLate: number
}

export interface MemoryWatch {
  /** To be called once per event; looks every 1000. */
  tick(): void
  peak(): MemoryPeak
}

const MB = 1024 * 1024

export function watchMemory(): MemoryWatch {
  const heaps: number[] = []
  let ticks = 0
  return {
    tick() {
      if (ticks++ % 1000 === 0) heaps.push(process.memoryUsage().heapUsed / MB)
    },
    peak() {
      const half = heaps.length >> 1
      const most = (list: number[]): number => Math.max(0, ...list)
      const rss = process.resourceUsage().maxRSS / 1024
      return { rss, heapEarly: most(heaps.slice(0, half)), heapLate: most(heaps.slice(half)) }
    },
  }
}
