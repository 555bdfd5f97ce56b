/**
 * The rules that every file must obey. Each is a pure function from sources to violations (`path:line what is wrong`), so
 * that `architecture.test.ts` can check that it detects violations before it applies it to the real files.
 */
import { codeOf, importsOf, lineAt, type Source } from './source-files.ts'

export type Rule = (sources: readonly Source[]) => string[]

/** The tree from top to bottom. A part imports only parts above it, so parts on one line never import each other. */
export const LAYERS: readonly (readonly string[])[] = [
  ['core'],
  ['database'],
  ['telemetry'],
  ['schema'],
  ['events', 'documents', 'audit'],
  ['consumers'],
  ['aggregates'],
  ['projections', 'subscriptions', 'workflows'],
  ['sessions'],
  ['parts.ts'],
  ['transfer'],
  ['upkeep'],
  ['tenants'],
  ['server'],
  ['store.ts'],
  ['config.ts'],
  ['errors.ts', 'query.ts', 'patch.ts'],
  ['index.ts'],
  ['verify'],
  ['cli'],
  ['testing'],
  ['integrations'],
]

const MAX_LINES: Record<string, number> = { src: 500, test: 600, console: 250 }
const BANNED_NAMES = /^(utils?|helpers?|types|common|constants|interfaces|manager|lib)$|-(utils?|helpers?)$/
const FOLDERS_WITHOUT_HEAD = ['migrations', 'integrations']

/** A part is a folder of `src`, or a file right in it. */
export const importsOnlyFromAbove: Rule = sources =>
  under('src/', sources).flatMap(source => {
    const own = partOf(source.path)
    if (layerOf(own) < 0) return [`${source.path}:1 is in "${own}", which has no place in the table of layers`]
    return importsOf(source)
      .filter(({ target }) => /^(src|test|bench|examples|\.\.)(\/|$)|^rillflow\b/.test(target))
      .filter(({ target }) => partOf(target) !== own && !isAbove(partOf(target), own))
      .map(({ target, line }) => `${source.path}:${line} "${own}" may not import ${target}`)
  })

/**
 * A table's name is written in its own folder. Folders below it in the table of layers reach it through the names that
 * its folder exports, or by `~name` in a SQL function, and only to read it. `homes`: the folder of each table.
 */
export function tablesStayAtHome(homes: ReadonlyMap<string, string>): Rule {
  const names = [...homes.keys()].join('|')
  const literal = new RegExp(`\\bidentifier\\([^()]*'(${names})'\\)`, 'g')
  const reference = new RegExp(`~(${names})\\b`, 'g')
  const verb = '(?:insert into|update|delete from|truncate|lock table)'
  const written = new RegExp(`\\b${verb}\\s+(?:~|\\$\\{(?:[^{}]*\\.)?)(${names})\\b`, 'gi')
  return sources =>
    under('src/', sources).flatMap(source => {
      const own = partOf(source.path)
      const found = (pattern: RegExp, verb: string, isAllowed: (home: string) => boolean): string[] =>
        [...source.text.matchAll(pattern)].flatMap(({ 1: table, index }) => {
          const home = homes.get(table!)!
          if (home === own || isAllowed(home)) return []
          return [`${source.path}:${lineAt(source.text, index)} ${verb} table ${table}, which belongs to ${home}`]
        })
      return [
        ...found(literal, 'names', () => false),
        ...found(reference, 'names', home => isAbove(home, own)),
        ...found(written, 'writes', () => false),
      ]
    })
}

export const filesAreShort: Rule = sources =>
  sources.flatMap(({ path, text }) => {
    const lines = text.trimEnd().split('\n').length
    const limit = MAX_LINES[path.split('/')[0] ?? ''] ?? Number.POSITIVE_INFINITY
    return lines > limit ? [`${path}:${lines} has ${lines} lines, the limit is ${limit}`] : []
  })

const MIN_LINES = 40

/**
 * A short file of src has a reason: it is the errors or the tables of its folder, the head of a folder, an entry of the
 * package, or `reasons` says why it is a file of its own.
 */
export function shortFilesHaveReasons(reasons: Readonly<Record<string, string>>): Rule {
  return sources => {
    const short = under('src/', sources).filter(({ text }) => text.trimEnd().split('\n').length < MIN_LINES)
    const isKnown = (path: string): boolean =>
      path.split('/').length === 2 ||
      ['errors', 'schema', path.split('/').at(-2)].includes(stem(path)) ||
      Object.hasOwn(reasons, path)
    const unknown = short.filter(({ path }) => !isKnown(path)).map(({ path }) => `${path}:1 is short, without a reason`)
    const grown = Object.keys(reasons).filter(path => !short.some(source => source.path === path))
    const present = grown.filter(path => sources.some(source => source.path === path))
    return [...unknown, ...present.map(path => `${path}:1 has a reason to be short, and is not`)]
  }
}

/** A loop is `core/loop.ts`. `watchdogs`: files with a timer that ends one silent connection, and looks for no work. */
export function loopsAreTheKernel(watchdogs: readonly string[]): Rule {
  return sources =>
    matches(
      /\bsetInterval\(/g,
      under('src/', sources)
        .filter(({ path }) => !watchdogs.includes(path))
        .map(blank),
      'is a loop of its own',
    )
}

export const filesAreNamedAfterThings: Rule = sources =>
  sources.filter(({ path }) => BANNED_NAMES.test(stem(path))).map(({ path }) => `${path}:1 says nothing by its name`)

export const onlyOneBarrel: Rule = sources =>
  under('src/', sources)
    .filter(({ path }) => stem(path) === 'index' && path !== 'src/index.ts')
    .map(({ path }) => `${path}:1 is a barrel; import the file that has the thing`)

export const foldersHaveHeads: Rule = sources => {
  const heads = new Map<string, string>()
  for (const { path, text } of [...under('src/', sources), ...under('console/', sources)]) {
    const folder = path.split('/').at(-2) ?? ''
    const head = path.replace(/[^/]+$/, folder)
    if (folder === 'src' || folder === 'console' || FOLDERS_WITHOUT_HEAD.includes(folder)) continue
    if (path.replace(/\.tsx?$/, '') === head)
      heads.set(head, /^(#!.*\n)?\/\*\*/.test(text) ? '' : `${path}:1 has no head comment`)
    else if (!heads.has(head)) heads.set(head, `${path}:1 has no ${folder}.ts next to it to explain its folder`)
  }
  return [...heads.values()].filter(offence => offence !== '')
}

/** The browser program takes types of the server and no code: it would carry the store into the browser. */
export const consoleImportsOnlyTypes: Rule = sources =>
  matches(/^import (?!type )[^;'"]*?from '(?:\.\.\/)+src\/[^']*'/gm, under('console/', sources), 'imports code')

/** The policy of the page refuses styles in markup, and text of strangers must never become markup. */
export const markupIsNeverText: Rule = sources =>
  matches(
    /\b(?:innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write)\b|\sstyle=/g,
    under('console/', sources),
    'makes markup from text',
  )

export const onlyTheCliPrints: Rule = sources => matches(/\bconsole\s*\./g, codeOutsideCli(sources), 'prints')

export const onlyTheCliListensToTheProcess: Rule = sources =>
  matches(/\bprocess\s*\.\s*(on|once|addListener|prependListener)\s*\(/g, codeOutsideCli(sources), 'hooks the process')

/**
 * Time, timers and chance come from `core/host.ts`, so that a simulation can own them. Parts that no simulation runs may use
 * those of Node: the engines themselves, and programs around a store.
 */
export const hostIsReplaceable: Rule = sources =>
  matches(
    /\b(?:Date\.now|performance\.now|Math\.random|setInterval|setImmediate|randomUUID|randomFillSync)\b|(?<![.\w])setTimeout\(/g,
    under('src/', sources)
      .filter(({ path }) => !/^src\/(?:database|tenants|transfer|server|verify|cli|testing|integrations)\//.test(path))
      .filter(({ path }) => !['src/core/host.ts', 'src/core/clock.ts'].includes(path))
      .map(blank),
    'takes time or chance from Node instead of core/host.ts',
  )

/** In the place of a type; a function, a variable or a property may have this name. */
export const nothingIsAny: Rule = sources =>
  matches(
    /(?:\S:|[<|&]|=>|\b(?:as|extends|satisfies))\s*any\b(?!\s*[(.:])|\bany\s*(?:\[\]|>)/g,
    [...under('src/', sources), ...under('console/', sources)].map(blank),
    'uses any',
  )

/** The words are spelt so that this line does not match. */
export const nothingIsLeftForLater: Rule = sources =>
  matches(/\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b/g, sources, 'leaves something for later')

export const everyTestRuns: Rule = sources =>
  matches(
    /\b(?:test|it|describe|suite|context|ctx)(?:\.\w+)*\.(?:only|skip|todo)\b/g,
    under('test/', sources).map(blank),
    'singles out or leaves out a test',
  )

/** The compiler does not see the bench, which has packages of its own; what the build makes is not there yet. */
export const benchImportsExist: Rule = sources => {
  const known = new Set(sources.map(({ path }) => path))
  return under('bench/', sources).flatMap(source =>
    importsOf(source)
      .filter(({ target }) => /^(src|test|bench)\/.*\.ts$/.test(target) && !known.has(target))
      .map(({ target, line }) => `${source.path}:${line} imports ${target}, which does not exist`),
  )
}

/** The reason of an invalid option is its message, so it is a whole sentence. */
export const optionErrorsAreSentences: Rule = sources =>
  matches(/new InvalidOption\(\{[^{}]*?\breason: ['"`](?![A-Z$"]).*/g, under('src/', sources), 'is not a sentence')

/** In source, in documentation and in the titles of tests. */
export const wordsArePlain: Rule = sources =>
  sources.flatMap(source => {
    if (source.path.startsWith('test/')) return matches(unclear, [titlesOf(source)], 'says')
    if (/^(docs\/|README\.md$)/.test(source.path)) return matches(unclear, [unwrapped(source)], 'says')
    if (!/^(src|console)\//.test(source.path)) return []
    return matches(unclear, [unwrapped(source)], 'says').concat(matches(oldNames, [source], 'still says'))
  })

/** Words that a reader has to learn first. Each is also found as a part of a name: `applyTold`, `is_lone`. */
const UNCLEAR_WORDS = [
  'told',
  'hear(?:s|d|ers?|ing)?',
  'whoever',
  'besides?',
  'bury|buries|buried',
  'takers?',
  'seats?',
  'lone',
  'joint',
  'heed(?:s|ed|ing)?',
  'rosters?',
  'tired|hungry|choosy',
  'daemons?',
  // An axis of a chart has an option of this name.
  '(?<!next)ticks?(?!: \\{ show)',
  'somebody|nobody|everybody|anybody',
]

const PERSONS =
  '[Uu]sers?|[Pp]eople|[Pp]ersons?|[Cc]ustomers?|[Oo]perators?|[Ee]ngineers?|[Aa]nyone|[Ss]omeone|[Ee]veryone'

/** `who` follows the noun for a person; "is no" is part of "there is no" and of "is no longer". */
const UNCLEAR_PHRASES = [
  /\b(?:goes|go|went|gone|going)\s+on\s+with\b/,
  /\bsigns?\s+of\s+life\b/,
  /\bany\s+more(?=\s*(?:[.,;:)'"`]|\*\/|$))/,
  new RegExp(`\\b[Ww]ho\\b(?<!\\b(?:${PERSONS})\\s+[Ww]ho)`),
  /\bis\s+no\s+(?!longer\b)(?<!\b[Tt]here\s+is\s+no\s+)/,
  /\b(?:most(?!Recent)|longest)[A-Z]\w*/,
  /\bfinish(?:es|ing|ers?)?\b/,
  // A comment begins with the thing.
  /\/\*\* What (?!can fail\b)/,
]

/** Old names of a workflow's handle, of a dead letter, and of the end of an attempt. */
const OLD_NAMES = [
  part('flows?'),
  /\b(?!\w*[Dd]ead_?[Ll]etter)\w*(?:(?<=[a-z])Letter|_letter|letters?_|letters?(?=[A-Z])|\bLetter(?=[A-Z]))\w*/,
  /\b\w*_finish\b|\bfinish[A-Z]\w*|\bFinish(?:er)?\b/,
]

const unclear = anyOf([...UNCLEAR_WORDS.map(part), ...UNCLEAR_PHRASES])
const oldNames = anyOf(OLD_NAMES)

/** A whole word, or a whole part of a name in camel or snake case. */
function part(words: string): RegExp {
  const later = words.replace(
    /(^|\|)((?:\(\?<!\w+\))?)([a-z])/g,
    (_, or, before, first) => or + before + first.toUpperCase(),
  )
  return new RegExp(`(?<![A-Za-z])(?:${words}|${later})(?![a-z])|(?<=[a-z])(?:${later})(?![a-z])`)
}

function anyOf(patterns: readonly RegExp[]): RegExp {
  return new RegExp(patterns.map(({ source }) => source).join('|'), 'gm')
}

/** Without the marks at the beginning of a comment's lines, so that a phrase is found across two of them. */
function unwrapped({ path, text }: Source): Source {
  return {
    path,
    text: text.replace(/^(\s*)(\*(?!\/)|\/\/|--|>)(?= )/gm, (_, indent, mark) => indent + ' '.repeat(mark.length)),
  }
}

/** The titles of tests and of groups of tests, each on its line, and nothing else. */
function titlesOf({ path, text }: Source): Source {
  const call = /\b(?:test|it|describe)(?:\.\w+)*(?:\([^()]*\))?\(\s*/
  const title = /'((?:\\.|[^'\\\n])*)'|"((?:\\.|[^"\\\n])*)"|`((?:\\.|[^`\\])*)`/
  let titles = ''
  let end = 0
  for (const match of text.matchAll(new RegExp(`${call.source}(?:${title.source})`, 'g'))) {
    titles += text.slice(end, match.index).replace(/[^\n]+/g, '') + (match[1] ?? match[2] ?? match[3])
    end = match.index + match[0].length
  }
  return { path, text: titles }
}

const maxTableWidth = 120

/** A wider table is cut off on a phone and wrapped on a terminal: a list says the same. */
export const tablesFit: Rule = sources =>
  sources.flatMap(({ path, text }) =>
    text
      .split('\n')
      .flatMap((line, at) =>
        line.startsWith('|') && line.length > maxTableWidth
          ? [`${path}:${at + 1} is a wide table: make it a list`]
          : [],
      ),
  )

export const lockFileHasNoAddresses: Rule = sources => matches(/"resolved"/g, sources, 'holds a download address')

function matches(pattern: RegExp, sources: readonly Source[], what: string): string[] {
  return sources.flatMap(({ path, text }) =>
    [...text.matchAll(pattern)].map(match => `${path}:${lineAt(text, match.index)} ${what}: ${match[0].trim()}`),
  )
}

function under(folder: string, sources: readonly Source[]): Source[] {
  return sources.filter(({ path }) => path.startsWith(folder))
}

function codeOutsideCli(sources: readonly Source[]): Source[] {
  return under('src/', sources)
    .filter(({ path }) => partOf(path) !== 'cli')
    .map(blank)
}

function blank({ path, text }: Source): Source {
  return { path, text: codeOf(text, 'blank') }
}

function partOf(path: string): string {
  if (path === 'src/assemble.ts' || path === 'src/store-options.ts') return 'store.ts'
  return path.startsWith('src/') ? (path.split('/')[1] ?? '') : path
}

function layerOf(part: string): number {
  return LAYERS.findIndex(layer => layer.includes(part))
}

function isAbove(part: string, other: string): boolean {
  return layerOf(part) >= 0 && layerOf(part) < layerOf(other)
}

/** The name up to the first dot: `append` of `append.test.ts`. */
function stem(path: string): string {
  return path.split('/').at(-1)?.split('.')[0] ?? ''
}
