/** Whether the palette is open; its code is loaded with its first use. */
import { signal } from '@preact/signals'

export const isPaletteOpen = signal(false)

export function openPalette(): void {
  isPaletteOpen.value = true
}
