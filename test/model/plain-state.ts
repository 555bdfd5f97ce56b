/**
 * The states of a model as plain data: copied, compared, and written as a short key, so that the checker finds out whether
 * it has seen one. Small whole numbers, a few words, booleans, null, arrays and objects; objects in the same place have the
 * same properties in the same order.
 */

export function copyOf<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(copyOf) as T
  const copy = { ...value }
  for (const key in copy) if (typeof copy[key] === 'object') copy[key] = copyOf(copy[key])
  return copy
}

/**
 * A short text for each state, the same for equal states and for no others. (JSON takes twice the time and ten times the
 * memory.) A byte stands for each value: null, false, true, an object, an array, up to 94 words, numbers from -20 to 135.
 */
export function openKeys(): (state: unknown) => string {
  const words = new Map<string, number>()
  let bytes = Buffer.alloc(1_000)
  let length = 0
  return state => {
    length = 0
    add(state)
    return bytes.toString('latin1', 0, length)
  }

  function add(value: unknown): void {
    const isObject = typeof value === 'object' && value !== null
    push(isObject ? (Array.isArray(value) ? 4 : 3) : codeOf(value))
    if (!isObject) return
    if (Array.isArray(value)) push(numberCode(value.length))
    for (const key in value) add(value[key as keyof typeof value])
  }

  function push(code: number): void {
    if (length === bytes.length) bytes = Buffer.concat([bytes, bytes])
    bytes[length++] = code
  }

  function codeOf(value: unknown): number {
    if (typeof value === 'number') return numberCode(value)
    if (typeof value === 'string') return words.get(value) ?? newWord(value)
    if (typeof value === 'boolean') return value ? 2 : 1
    if (value === null) return 0
    throw new Error(`A state has ${String(value)}, which is not plain data.`)
  }

  function newWord(word: string): number {
    if (words.size === 95) throw new Error(`States have too many words: "${word}".`)
    words.set(word, 5 + words.size)
    return 4 + words.size
  }

  function numberCode(value: number): number {
    if (!Number.isInteger(value) || value < -20 || value > 135) throw new Error(`A state has the number ${value}.`)
    return 120 + value
  }
}

/** An order of the states of equal processes, whatever it is: for `canonical`. */
export function compareData<T>(a: T, b: T): number {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null)
    return a === b ? 0 : String(a) < String(b) ? -1 : 1
  if (Array.isArray(a) && Array.isArray(b) && a.length !== b.length) return a.length - b.length
  for (const key in a) {
    const order = a[key] === b[key] ? 0 : compareData(a[key], b[key])
    if (order !== 0) return order
  }
  return 0
}
