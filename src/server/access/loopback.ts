import { isIP } from 'node:net'

/** Whether this name or address is one of this machine alone. */
export function isLoopback(host: string): boolean {
  const address = host.replace(/^\[(.*)\]$/, '$1').toLowerCase()
  return address === 'localhost' || address === '::1' || (isIP(address) === 4 && address.startsWith('127.'))
}
