/**
 * Ids that follow from what they are about: the same parts give the same id, in every process and every run. UUIDv8, with a
 * time in front, so that inserts stay on the last pages of a unique index, where a plain hash would scatter them.
 */
import { createHash } from 'node:crypto'

export function derivedId(at: Date, ...parts: readonly string[]): string {
  const hash = createHash('sha256')
  // With its length, so that no two lists of parts read the same.
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:`).update(part)
  const bytes = hash.digest().subarray(0, 16)
  bytes.writeUIntBE(Math.max(0, at.getTime()), 0, 6)
  bytes[6] = 0x80 | (bytes[6]! & 0x0f)
  bytes[8] = 0x80 | (bytes[8]! & 0x3f)
  const hex = bytes.toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
