/** The type of a value after it was stored as JSON. */

/**
 * A `Date` comes back as text. A type without dates is left as it is, with its name. Looks four levels deep, which keeps
 * recursive types finite.
 */
export type AsJson<T> = HasDate<T> extends true ? Converted<T> : T

/** The same for an object. */
export type ObjectAsJson<T extends object> = HasDate<T> extends true ? { [K in keyof T]: Converted<T[K]> } : T

type Converted<T> = T extends Date
  ? string
  : T extends Plain
    ? T
    : T extends object
      ? { [K in keyof T]: Converted<T[K]> }
      : T

type Plain = string | number | bigint | boolean | symbol | null | undefined | ((...given: never[]) => unknown)

/** True, false, or both for a union of which only a part has dates. */
type HasDate<T, Depth extends 0[] = []> = 0 extends 1 & T
  ? false
  : unknown extends T
    ? false
    : true extends DateIn<T, Depth>
      ? true
      : false

type DateIn<T, Depth extends 0[]> = Depth['length'] extends 4
  ? false
  : T extends Date
    ? true
    : T extends Plain
      ? false
      : T extends readonly (infer Item)[]
        ? HasDate<Item, [...Depth, 0]>
        : T extends object
          ? { [K in keyof T]-?: HasDate<T[K], [...Depth, 0]> }[keyof T]
          : false
