/**
 * How much a document takes when it is read, in the database: pages end by their bytes, and a document that no process can
 * read does not hide the others.
 *
 *     statement ──► the same rows, each with its bytes, and the sum up to it ──► those of one page, without bodies that are
 *                                                                               too large
 *
 * The text of a body can be far larger than what is stored, so it is measured; where little is stored it cannot matter, and
 * is not worth the making of the text. A body of at most `smallBytes` on disk has at the utmost a few megabytes of text.
 */
import { maxRowBytes } from '../database/sqlstate.ts'

/** Rows of more bytes are not read. The other columns of a row have room in what is left. */
export const maxReadBytes: number = maxRowBytes - 1024 * 1024

const smallBytes = 2_000
/** The size of the rest of a row, about. */
const rowBytes = 200

/** The size of a row's JSON and texts, if it is too large to be read; these columns are null then. */
export function tooLarge(row: readonly unknown[], columns: number): number | undefined {
  const bytes = Number(row[columns] ?? 0)
  return bytes > maxReadBytes ? bytes : undefined
}

/** Whether there are more rows than fitted into the page. */
export function isCutShort(rows: readonly (readonly unknown[])[]): boolean {
  return rows.length > 0 && Number(rows[0]!.at(-1)) > rows.length
}

/**
 * The statement `text` with three columns more: `bytes`, the sum of them, and how many rows there are. `measured` says of
 * each of its columns whether it is JSON or text. It ends with the row that reaches `maxBytes`.
 */
export function withSizes(
  label: string,
  text: string,
  measured: readonly boolean[],
  maxBytes: number = Number.MAX_SAFE_INTEGER,
): string {
  const names = measured.map((_, i) => `c${i + 1}`)
  const sizes = names.filter((_, i) => measured[i]).map(textBytes)
  const shown = names.map((name, i) => (measured[i] ? `case when bytes <= ${maxReadBytes} then ${name} end` : name))
  return `/* ${label} */
    select ${shown.join(', ')}, bytes, total, found
    from (
      select page.*, bytes, shown, sum(shown) over (rows unbounded preceding) as total, count(*) over () as found
      from (
        ${text}
      ) as page (${names.join(', ')})
      cross join lateral (
        select bytes, case when bytes <= ${maxReadBytes} then bytes else 0 end + ${rowBytes} as shown
        from (
          select (${sizes.length === 0 ? '0' : sizes.join(' + ')})::bigint as bytes
          offset 0) as measured
        offset 0) as size
    ) as page
    where total - shown < ${maxBytes}
    order by total`
}

/** SQL of the bytes of a column's text. Of what is stored in more bytes than are read, no text is made. */
export function textBytes(column: string): string {
  return `coalesce(case
      when pg_column_size(${column}) between ${smallBytes} and ${maxReadBytes} then octet_length(${column}::text)
      else pg_column_size(${column})
    end, 0)`
}
