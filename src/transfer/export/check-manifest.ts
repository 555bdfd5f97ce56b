/**
 * Checks a manifest field by field: nothing of it is used before it has the form that an export writes. Returns why it is
 * refused, as the end of a sentence about the manifest.
 */
import { expected } from '../../schema/expected.ts'
import type { TableShape } from '../table-shape.ts'
import type { ExportManifest } from './manifest.ts'
import { faultOfShape } from './trusted-shape.ts'

export function faultOfManifest(given: unknown): string | undefined {
  const fault = faultOf(given, manifestForm, 'the manifest')
  if (fault !== undefined) return fault
  const manifest = given as ExportManifest
  const names = manifest.tables.map(({ name }) => name)
  const files = manifest.tables.flatMap(({ file }) => (file === null ? [] : [file.name]))
  if (new Set(names).size < names.length) return 'has two tables of one name'
  if (new Set(files).size < files.length) return 'has two tables in one file'
  // The manifest itself has them, and the import runs them.
  if (names.includes('migrations')) return 'has a table of migrations'
  const sequence = Object.keys(manifest.sequences).find(name => !Object.hasOwn(expected.sequences, name))
  if (sequence !== undefined) return `has a sequence ${JSON.stringify(sequence)}, which does not belong to a store`
  for (const table of manifest.tables) {
    const shapeFault = faultOfShape(table as TableShape)
    if (shapeFault !== undefined)
      return `has a table ${JSON.stringify(table.name)} that ${shapeFault}, which no export of this version writes`
  }
  return undefined
}

type Form = ((value: unknown) => boolean) | { readonly [field: string]: Form } | ListForm | OrNull
interface ListForm {
  readonly eachIs: Form
}
interface OrNull {
  readonly orNull: Form
}

const isText = (value: unknown): boolean => typeof value === 'string' && value.length <= 10_000
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0
const isFlag = (value: unknown): boolean => typeof value === 'boolean'
const matches =
  (pattern: RegExp) =>
  (value: unknown): boolean =>
    typeof value === 'string' && pattern.test(value)
const isListOfText: ListForm = { eachIs: isText }

const manifestForm: Form = {
  format: isText,
  version: isCount,
  createdAt: matches(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  engine: matches(/^(postgres|pglite)$/),
  schema: isText,
  migrations: { eachIs: { id: isCount, name: isText, checksum: isText } },
  tables: {
    eachIs: {
      name: isText,
      columns: {
        eachIs: { name: isText, type: isText, nullable: isFlag, default: { orNull: isText }, generated: isFlag },
      },
      primaryKey: { name: isText, columns: isListOfText },
      indexes: { eachIs: { name: isText, unique: isFlag, definition: isText, comment: { orNull: isText } } },
      storage: isListOfText,
      file: {
        orNull: {
          name: matches(/^\d{3,6}-\w{0,63}\.ndjson$/),
          rows: isCount,
          bytes: isCount,
          sha256: matches(/^[0-9a-f]{64}$/),
        },
      },
    },
  },
  sequences: value => isObject(value) && Object.values(value).every(isCount),
  position: isCount,
}

function faultOf(value: unknown, form: Form, where: string): string | undefined {
  if (typeof form === 'function') return form(value) ? undefined : `has an unexpected value in ${where}`
  if (isOrNull(form)) return value === null ? undefined : faultOf(value, form.orNull, where)
  if (isListForm(form)) {
    if (!Array.isArray(value)) return `has no list in ${where}`
    for (const [at, each] of value.entries()) {
      const fault = faultOf(each, form.eachIs, `${where}[${at}]`)
      if (fault !== undefined) return fault
    }
    return undefined
  }
  if (!isObject(value)) return `has no object in ${where}`
  const odd = Object.keys(value).find(field => !Object.hasOwn(form, field))
  if (odd !== undefined) return `has a field ${JSON.stringify(odd.slice(0, 80))} in ${where}, which no export writes`
  for (const [field, fieldForm] of Object.entries(form)) {
    const fault = faultOf(value[field], fieldForm, where === 'the manifest' ? field : `${where}.${field}`)
    if (fault !== undefined) return fault
  }
  return undefined
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isOrNull(form: Exclude<Form, (value: unknown) => boolean>): form is OrNull {
  return 'orNull' in form
}

function isListForm(form: Exclude<Form, (value: unknown) => boolean>): form is ListForm {
  return 'eachIs' in form
}
