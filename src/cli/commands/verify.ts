/**
 * `rillflow verify`: whether a server, with the pooler and the network in front of it, keeps what the store relies on.
 *
 * Guarantee: no existing store is touched. Every round uses a new schema, which is dropped.
 */
import type { SelfTest, Verdict } from '../../verify/verify.ts'
import { type Command, defineCommand } from '../command.ts'
import { withLocation } from '../config.ts'
import { count, digits } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { WrongUsage } from '../report-error.ts'

const minuteMs = 60_000

export const verifyServer: Command = defineCommand({
  description:
    'Writers that commit late, readers that follow, callers that race while their connections are cut, transactions over several streams and documents: what they asked for and what they got is recorded and judged. Uses a new schema for each round, and drops it. Exits with 3 if something is wrong, and says which calls contradict each other.',
  options: {
    minutes: { kind: 'whole', value: 'COUNT', default: 1, summary: 'How long it tries' },
    pooler: { kind: 'flag', summary: 'Keep no session state, as behind a pooler in transaction mode' },
    selfTest: { kind: 'flag', summary: 'Show instead that protocols that are wrong would be found out' },
  },
  examples: [
    'rillflow verify --url postgres://localhost/shop --minutes 5',
    'rillflow verify --url postgres://localhost:6432/shop --pooler --json',
    'rillflow verify --self-test',
  ],
  async run({ out, config, location, options: { minutes, pooler, selfTest: isSelfTest }, signal }) {
    const { url } = withLocation((await config())?.config ?? {}, location)
    if (!url) throw new WrongUsage({ reason: 'verify needs a server: pass --url, or set DATABASE_URL' })
    const { selfTest, verify } = await import('../../verify/verify.ts')
    const server = { url, signal, ...(pooler ? { prepare: false } : {}) }
    const bar = out.progress(isSelfTest ? 'Trying wrong protocols' : 'Verifying')
    try {
      if (isSelfTest) {
        const result = await selfTest({ ...server, onProgress: (done, all) => bar.update(done, all, 'protocol') })
        bar.end()
        out.print(result, style => selfTestText(style, result))
        return result.isRight ? 0 : 3
      }
      const ms = minutes * minuteMs
      const onProgress = (passedMs: number): void =>
        bar.update(Math.round(Math.min(passedMs, ms) / 1000), ms / 1000, 'second')
      const verdict = await verify({ ...server, ms, onProgress })
      bar.end()
      out.print(verdict, style => verdictText(style, verdict))
      return verdict.isRight ? 0 : 3
    } finally {
      bar.end()
    }
  },
})

function verdictText({ colour }: Style, { isRight, rounds, checks }: Verdict): string {
  const lines = checks.flatMap(({ name, operations, problems }) => [
    `${problems.length === 0 ? colour.green('right') : colour.red('wrong')}  ${name.padEnd(12)}  ${digits(operations)} judged`,
    ...problems.map(problem => problem.replaceAll(/^/gm, '       ')),
  ])
  const verdict = isRight
    ? `Nothing is wrong, in ${count(rounds, 'round')}. It can only show that something is wrong: try longer to trust it more.`
    : 'Something is wrong. A store on this server may lose events, or give answers that are not true.'
  return [...lines, '', verdict].join('\n')
}

function selfTestText({ colour }: Style, { isRight, protocols }: SelfTest): string {
  const lines = protocols.map(({ name, problem }) =>
    problem === undefined
      ? `${colour.red('not found out')}  ${name}`
      : `${colour.green('found out')}  ${name}: ${colour.dim(problem.split('\n')[0]!)}`,
  )
  const verdict = isRight ? 'Each wrong protocol is found out here.' : 'A wrong protocol would not be found out here.'
  return [...lines, '', verdict].join('\n')
}
