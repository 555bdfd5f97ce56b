/** Everything outside the shop: a card gateway that is down now and then, and a mail server. */
import { say } from './print.ts'

const charged = new Map<string, string>()
const refused = new Set<string>()

export const gateway = {
  /** Charges once per key, however often it is called. It refuses the first call for every third order. */
  async charge(cents: number, { idempotencyKey }: { idempotencyKey: string }): Promise<string> {
    const receipt = charged.get(idempotencyKey)
    if (receipt !== undefined) return receipt
    const isDown = (charged.size + refused.size) % 3 === 2 && !refused.has(idempotencyKey)
    if (isDown) {
      refused.add(idempotencyKey)
      throw new Error('the card gateway does not answer')
    }
    charged.set(idempotencyKey, `receipt-${charged.size + 1}: ${(cents / 100).toFixed(2)}`)
    return charged.get(idempotencyKey)!
  },
  /** The receipt is undefined if it is not known whether the charge succeeded. */
  async refund({ cents }: { cents: number }, receipt: unknown): Promise<void> {
    say(`          ${(cents / 100).toFixed(2)} go back for ${receipt ?? 'a charge that may not have succeeded'}`)
  },
}

export async function mail({ stream, data }: { stream: string; data: { carrier: string } }): Promise<void> {
  say(`          a mail: ${stream} is on its way with ${data.carrier}`)
}
