/** The files of the console, as `Assets` of the server has them. */
export function buildConsole(root: string): Promise<{
  main: string | undefined
  styles: string[]
  files: Record<string, readonly [type: string, content: string]>
}>
