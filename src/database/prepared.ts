/**
 * Statements whose text depends on a request, such as filters and patches, have any number of shapes. A prepared one stays
 * on its connection, with its plan, which takes tens of times the memory of its text. So such statements are prepared only
 * up to a number, and a number of bytes, of each table and in all; the others are sent without a name, and run all the same.
 */
import type { Statement } from './sql.ts'

export interface PreparedShapes {
  /** Whether this statement is, or becomes, one of those that stay prepared. */
  keeps(statement: Statement): boolean
}

interface Shapes {
  readonly texts: Set<string>
  bytes: number
}

const ofTable = { texts: 200, bytes: 256 * 1024 }
const inAll = { texts: 2_000, bytes: 2 * 1024 * 1024 }
const maxBytes = 16 * 1024

export function openPreparedShapes(): PreparedShapes {
  const tables = new Map<string, Shapes>()
  const all = { texts: 0, bytes: 0 }
  return {
    keeps({ text, shapeOf, unprepared }) {
      if (unprepared === true) return false
      if (shapeOf === undefined) return true
      const known = tables.get(shapeOf) ?? { texts: new Set(), bytes: 0 }
      if (known.texts.has(text)) return true
      const bytes = Buffer.byteLength(text)
      const isFull = known.texts.size >= ofTable.texts || known.bytes + bytes > ofTable.bytes
      if (isFull || bytes > maxBytes || all.texts >= inAll.texts || all.bytes + bytes > inAll.bytes) return false
      known.texts.add(text)
      known.bytes += bytes
      all.texts++
      all.bytes += bytes
      tables.set(shapeOf, known)
      return true
    },
  }
}
