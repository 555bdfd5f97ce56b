/** Pages in the order of the index; paths from `docs`. */
export function indexedPages(): string[]
export function allPages(): string[]
export function llmsText(): string
