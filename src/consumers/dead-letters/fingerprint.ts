import { createHash } from 'node:crypto'
import { describeError } from '../run/failure.ts'

/** Equal for failures that are alike: numbers and ids in the message are ignored. */
export function fingerprint(owner: string, error: unknown): string {
  const { name, code, message } = describeError(error)
  const alike = message.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+/gi, '#').slice(0, 300)
  return createHash('sha256')
    .update([owner, name, code ?? '', alike].join('\n'))
    .digest('hex')
    .slice(0, 16)
}
