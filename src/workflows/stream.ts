/** The stream that a workflow's own events go to, unless they say otherwise. */
import { createHash } from 'node:crypto'

/** Streams have names of 255 bytes, and so do correlation ids: of a very long one a digest is taken. */
export function streamOf(correlationId: string): string {
  const name = `workflow-${correlationId}`
  if (name.length * 3 <= longest || Buffer.byteLength(name) <= longest) return name
  return `workflow-${createHash('sha256').update(correlationId).digest('hex')}`
}

const longest = 255
