/**
 * Which partition a key belongs to. A stored fact depends on it, so it is our own function and never changes: FNV-1a over
 * the key's UTF-8 bytes, then mixed, because the low bits of FNV alone are uneven for short keys.
 */
export function partitionOf(key: string, partitions: number): number {
  return partitions === 1 ? 0 : hash(key) % partitions
}

export function hash(text: string): number {
  let h = 0x811c9dc5
  for (const byte of Buffer.from(text)) h = Math.imul(h ^ byte, 0x01000193)
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}
