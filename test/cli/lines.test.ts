import { existsSync } from 'node:fs'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { completedBy } from './bash.ts'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

let shop: Folder

beforeAll(async () => {
  shop = await openFolder({ empty: true })
}, patienceMs)

test('help needs no store, has an example, and goes to stdout', async () => {
  const nowhere = { env: { DATABASE_URL: 'postgres://127.0.0.1:1/nowhere', RILLFLOW_CONFIG: 'nowhere.mjs' } }
  const [program, noun, verb, bare] = await Promise.all([
    shop.run('--help', nowhere),
    shop.run('events --help', nowhere),
    shop.run('events append -h', nowhere),
    shop.run('events', nowhere),
  ])

  expect(program).toMatchObject({ code: 0, stderr: '' })
  expect(program.stdout).toMatch(
    /Usage {2}rillflow COMMAND\n[\s\S]*\n {2}status +Show the state of the store at a glance\n/,
  )
  expect(noun.stdout).toContain('Usage  rillflow events tail|list|show|types|position|why|append|export|import')
  expect(verb.stdout).toMatch(
    /Usage {2}rillflow events append STREAM TYPE \[DATA\] \[OPTIONS\]\n[\s\S]*\nExample\n {2}rillflow events append order-42/,
  )
  expect(bare).toMatchObject({ code: 2, stdout: '' })
  expect(await shop.run('help events append')).toEqual(verb)
  expect(await shop.run('help')).toEqual(program)
})

test('help shows the other names of commands that users look for under another noun', async () => {
  const projections = await shop.run('projections --help')
  const pause = await shop.run('projections pause --help')

  expect(projections.stdout).toMatch(/\nOther names\n {2}status +The same as rillflow consumers status\n/)
  expect(pause.stdout).toContain('Usage  rillflow consumers pause NAME')
})

test('the version is that of the package', async () => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))

  for (const line of ['--version', '-v', 'version'])
    expect(await shop.run(line)).toEqual({ code: 0, stdout: `rillflow ${version}\n`, stderr: '' })
})

test('a line with a mistake is refused with the nearest name and a line to try, before a store is opened', async () => {
  const expected = {
    'projection list': [
      'There is no command "projection" (did you mean "projections"?)',
      'try: rillflow projections --help',
    ],
    'events tial': ['did you mean "events tail"?', 'try: rillflow events tail --help'],
    'events tail --limt 3': [
      '"rillflow events tail" has no option --limt (did you mean --limit?)',
      'try: rillflow events tail --help',
    ],
    '--verison': ['"rillflow" has no option --verison'],
    '--schema': ['--schema needs a value'],
    '-- status': ['"rillflow" does not take the argument "status"'],
    'events --limit=3': ['"rillflow events" has no option --limit'],
    'events tail --limit many': ['--limit must be a whole number, not "many"'],
    'events tail --limit': ['--limit needs a value'],
    'events tail --follow=yes': ['--follow takes no value'],
    'events show': ['"rillflow events show" needs EVENT: The id of the event'],
    'events show a b': ['"rillflow events show" does not take the argument "b"'],
    'completion tcsh': ['SHELL must be one of bash, zsh, fish, not "tcsh"'],
    'consumers reset orders -1': ['has no option -1'],
    'status --url notaurl': ['does not begin with a scheme', 'try: --url postgres://user:password@localhost:5432/shop'],
    'bench --seconds 0': ['--seconds is 0, so there would be nothing to measure'],
    'bench --callers 0': ['--callers is 0, so there would be nothing to measure'],
    'status --url a --folder b': ['--url and --folder cannot be used together'],
  }
  const lines = Object.keys(expected) as (keyof typeof expected)[]

  for (let at = 0; at < lines.length; at += 2) {
    await Promise.all(
      lines.slice(at, at + 2).map(async line => {
        const { code, stdout, stderr } = await shop.run(line)
        expect({ line, code, stdout }).toEqual({ line, code: 2, stdout: '' })
        for (const each of expected[line]) expect(stderr).toContain(each)
      }),
    )
  }
})

test('an error is JSON for programs, with its code and what to try; --debug adds the stack trace', async () => {
  const { stderr } = await shop.run('--json evnts')
  const debugged = await shop.run('evnts --debug')

  expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'wrong_usage', try: 'rillflow events --help' } })
  expect(debugged.stderr).toMatch(/\n +at /)
})

test('an error of the store ends with its code and a page that exists and describes it', async () => {
  const line = 'status --url postgres://127.0.0.1:1/shop'
  const { stderr } = await shop.run(line)
  const json = await shop.run(`${line} --json`)

  const [, page] = /\[database_unreachable\]\n {2}see: (\S+)\n$/.exec(stderr)!
  expect(await readFile(page!, 'utf8')).toMatch(/^# database_unreachable\n/)
  expect(JSON.parse(json.stderr)).toMatchObject({ error: { code: 'database_unreachable', docs: page } })
  expect((await shop.run('evnts')).stderr).not.toContain('see:')
  const { files } = JSON.parse(await readFile('package.json', 'utf8'))
  expect(files).toContain('docs/reference')
})

test('a server that does not answer is named without its password', async () => {
  const { code, stderr } = await shop.run('--database-url postgres://ada:secret@127.0.0.1:1/shop status')

  expect(code).toBe(1)
  expect(stderr).toContain('127.0.0.1:1')
  expect(stderr).not.toContain('secret')
})

test('colours appear on a terminal, or if they are requested', async () => {
  const [piped, asked, forced, refused] = await Promise.all([
    shop.run('--help'),
    shop.run('--help --color'),
    shop.run('--help', { env: { FORCE_COLOR: '1' } }),
    shop.run('--help --no-color', { env: { FORCE_COLOR: '1' } }),
  ])

  expect([piped, asked, forced, refused].map(each => each.stdout.includes('\u001b['))).toEqual([
    false,
    true,
    true,
    false,
  ])
})

test('completion knows every command, in three shells', async () => {
  const [bash, zsh, fish, json] = await Promise.all([
    shop.run('completion bash'),
    shop.run('completion zsh'),
    shop.run('completion fish'),
    shop.run('completion bash --json'),
  ])

  expect(zsh.stdout).toBe(`autoload -U +X bashcompinit && bashcompinit\n${bash.stdout}`)
  expect(fish.stdout).toContain(`-n '__fish_seen_subcommand_from events; and not __fish_seen_subcommand_from tail`)
  expect(JSON.parse(json.stdout)).toMatchObject({ 'events tail': expect.arrayContaining(['--follow', '--json']) })
  const expected = {
    'rillflow pro': ['projections'],
    'rillflow events ': ['tail', 'list', 'show', 'types', 'position', 'why', 'append', 'export', 'import'],
    'rillflow events t': ['tail', 'types'],
    'rillflow --url postgres://localhost/shop --json dead-letters re': ['retry', 'resolve'],
    'rillflow events tail --fol': ['--follow', '--folder'],
    'rillflow events show 01a1 --sch': ['--schema'],
    'rillflow completion ba': ['bash'],
    'rillflow completion bash --he': ['--help'],
  }
  expect(await completedBy(bash.stdout, Object.keys(expected), shop)).toEqual(expected)
})

test('init writes a configuration that works, and never overwrites one', async () => {
  const folder = await openFolder({ empty: true })
  await writeFile(join(folder.path, '.gitignore'), 'dist')
  const first = await folder.run('init')
  const second = await folder.run('init --json')

  expect(first).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('Wrote rillflow.config.mjs, and added .rillflow/ to .gitignore.'),
  })
  expect(await readFile(join(folder.path, '.gitignore'), 'utf8')).toBe('dist\n.rillflow/\n')
  expect(JSON.parse(second.stderr)).toMatchObject({ error: { code: 'wrong_usage' } })
  expect(await folder.run('upcasters list')).toMatchObject({ code: 0 })
  expect(existsSync(join(folder.path, '.rillflow'))).toBe(false)
})

test.skipIf(onServer)(
  'an empty url in the configuration means its folder, and without one it is an error',
  async () => {
    const config = `export default { url: process.env.SHOP_URL ?? '' }`
    const folder = await openFolder({ config })

    const without = await folder.run('status')
    await writeFile(
      join(folder.path, 'rillflow.config.mjs'),
      `export default { url: process.env.SHOP_URL ?? '', folder: './.rillflow' }`,
    )
    const withFolder = await folder.run('schema sync', { env: {} })

    expect(without).toMatchObject({ code: 2, stderr: expect.stringContaining('is the environment variable set?') })
    expect(withFolder).toMatchObject({ code: 0, stdout: expect.stringContaining('is up to date') })
  },
)

test('a configuration in TypeScript is loaded, through jiti if Node needs it', async () => {
  const folder = await openFolder({ empty: true })
  await writeFile(join(folder.path, 'tsconfig.json'), '{}')
  const begun = await folder.run('init')
  expect(begun).toMatchObject({ stdout: expect.stringContaining('rillflow.config.ts') })
  const typed = `import { defineConfig, defineUpcaster } from 'rillflow'
    const from: number = 1
    export default defineConfig({ upcasters: [defineUpcaster('OrderPlaced', { from, to: 2, run: (data: object) => data })] })`
  await writeFile(join(folder.path, 'rillflow.config.ts'), typed)
  // Node caches that it did not find a package, so each line has a process of its own.
  const alone = { env: {} }
  const without = await folder.run('upcasters list', alone)
  await symlink(resolve('node_modules/jiti'), join(folder.path, 'node_modules', 'jiti'))

  const listed = await folder.run('upcasters list --json', alone)

  const canStrip = Boolean((process.features as { typescript?: unknown }).typescript)
  expect(begun.stdout.includes('Next:\n  npm install --save-dev jiti ')).toBe(!canStrip)
  if (!canStrip)
    expect(without).toMatchObject({ code: 2, stderr: expect.stringContaining('try: npm install --save-dev jiti') })
  expect({ ...listed, stdout: JSON.parse(listed.stdout) }).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: { items: [{ type: 'OrderPlaced', from: 1, toType: 'OrderPlaced', to: 2 }] },
  })
})

test('a configuration with TypeScript that Node cannot strip falls back to jiti', async () => {
  const folder = await openFolder({ empty: true })
  const typed = `import { defineConfig, defineUpcaster } from 'rillflow'
    enum Version { First = 1, Second }
    const { First: from, Second: to } = Version
    export default defineConfig({ upcasters: [defineUpcaster('OrderPlaced', { from, to, run: data => data })] })`
  await writeFile(join(folder.path, 'rillflow.config.ts'), typed)
  const alone = { env: {} }
  const without = await folder.run('upcasters list', alone)
  await symlink(resolve('node_modules/jiti'), join(folder.path, 'node_modules', 'jiti'))

  const listed = await folder.run('upcasters list --json', alone)

  expect(without).toMatchObject({ code: 2, stderr: expect.stringContaining('try: npm install --save-dev jiti') })
  expect(JSON.parse(listed.stdout)).toMatchObject({ items: [{ type: 'OrderPlaced', from: 1, to: 2 }] })
})

test('an error about a configuration names the file and the reason', async () => {
  await writeFile(join(shop.path, 'broken.mjs'), 'export default 5')
  await writeFile(join(shop.path, 'throwing.mjs'), 'throw new Error("no key")')
  await writeFile(join(shop.path, 'lacking.mjs'), 'import "@shop/prices"')
  const [missing, broken, throwing, lacking] = await Promise.all([
    shop.run('upcasters list --config nowhere.mjs'),
    shop.run('upcasters list --config broken.mjs'),
    shop.run('upcasters list', { env: { RILLFLOW_CONFIG: 'throwing.mjs' } }),
    shop.run('upcasters list --config lacking.mjs'),
  ])

  expect(missing).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('Cannot use nowhere.mjs: the file does not exist'),
  })
  expect(broken).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('its default export must be a configuration'),
  })
  expect(throwing).toMatchObject({ code: 2, stderr: expect.stringContaining('Cannot use throwing.mjs: no key') })
  expect(lacking).toMatchObject({ code: 2, stderr: expect.stringContaining('try: npm install @shop/prices') })
})

test('the output of a configuration is not mixed into the data of --json', async () => {
  await writeFile(join(shop.path, 'talking.mjs'), 'console.log("good morning")\nexport default {}')

  const { code, stdout, stderr } = await shop.run('upcasters list --config talking.mjs --json')

  expect({ code, stdout: JSON.parse(stdout), stderr }).toEqual({
    code: 0,
    stdout: { items: [] },
    stderr: 'good morning\n',
  })
})

test('flags win over the environment, and the environment over the configuration', async () => {
  const folder = await openFolder({ empty: true })
  await mkdir(join(folder.path, 'empty'))
  await writeFile(join(folder.path, 'rillflow.config.mjs'), `export default { url: 'postgres://127.0.0.1:2/config' }`)
  const [flag, environment, file] = await Promise.all([
    folder.run('status --url postgres://127.0.0.1:4/flag', {
      env: { DATABASE_URL: 'postgres://127.0.0.1:3/environment' },
    }),
    folder.run('status', { env: { DATABASE_URL: 'postgres://127.0.0.1:3/environment' } }),
    folder.run('status', { env: { DATABASE_URL: '', RILLFLOW_SCHEMA: 'shop' } }),
  ])

  expect([flag, environment, file].map(each => /127\.0\.0\.1:\d/.exec(each.stderr)?.[0])).toEqual([
    ...['127.0.0.1:4', '127.0.0.1:3', '127.0.0.1:2'],
  ])
  expect(onServer || !existsSync(join(folder.path, '.rillflow'))).toBe(true)
})
