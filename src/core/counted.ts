/** Counts in sentences: `1 attempt`, `3 attempts`; `1 execution waits`, `3 executions wait`. */
export function counted(number: number, one: string, many: string = `${one}s`): string {
  return `${number} ${Number(number) === 1 ? one : many}`
}
