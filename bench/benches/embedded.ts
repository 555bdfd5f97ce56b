/** The embedded store, in a folder: 64 callers against one, and both against PGlite alone on the same folder. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Bench } from '../harness/bench.ts'
import { runProgram } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import { compare, interleave, median, type Sample } from '../harness/rounds.ts'
import type { EmbeddedAnswer, EmbeddedInput } from '../programs/embedded-engine.ts'

export const bench: Bench = {
  about: 'events per second in the embedded store, and how late timers of 5 ms fire meanwhile',
  async run({ quick, report }) {
    const folder = await mkdtemp(join(tmpdir(), 'rf-embedded-'))
    try {
      const store = await openStore({ folder })
      await store.close()
      const input = { folder, ms: quick ? 1000 : 4000, events: quick ? 20_000 : 100_000 }
      const contestants = (['ours', 'driver'] as const).map(contestant => ({
        name: contestant,
        async run() {
          const seen = await runProgram<EmbeddedAnswer>('embedded-engine', {
            contestant,
            ...input,
          } satisfies EmbeddedInput)
          return { value: 0, ...seen }
        },
      }))
      const samples = await interleave(contestants, { rounds: quick ? 2 : 5 })
      const [ours, driver] = [samples.get('ours')!, samples.get('driver')!]
      const pick = (list: readonly EmbeddedAnswer[], which: 'one' | 'many' | 'read'): Sample[] =>
        list.map(each => each[which])
      const unit = 'events/s'
      const peerName = 'per-append call'
      const [one, many, read] = [pick(ours, 'one'), pick(ours, 'many'), pick(ours, 'read')]
      report.result({ case: '1', peerName, peerNote: 'PGlite', unit, ...compare(one, pick(driver, 'one')) })
      report.result({ case: '64', peerName, peerNote: 'PGlite', unit, ...compare(many, pick(driver, 'many')) })
      report.result({ case: '64 to 1', peerName, peerNote: 'ours, 1 caller', unit, ...compare(many, one) })
      report.result({
        case: 'read',
        peerName: 'driver',
        peerNote: 'PGlite',
        unit,
        ...compare(read, pick(driver, 'read')),
      })
      const lateness = (list: readonly EmbeddedAnswer[]): Sample[] => list.map(({ many }) => ({ value: many.lateMs }))
      const late = compare(lateness(ours), lateness(driver), 'less')
      report.result({
        case: 'worst timer, 64 callers',
        peerName: 'driver',
        peerNote: 'PGlite',
        unit: 'ms late',
        ...late,
      })
      report.table(`embedded, ${input.events} events read`)
      for (const [name, list] of samples) report.say(`  ${name}: ${latenessOf(list)}`)
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
}

function latenessOf(list: readonly EmbeddedAnswer[]): string {
  const worst = (pick: (answer: EmbeddedAnswer) => number): string => `${Math.max(...list.map(pick)).toFixed(0)} ms`
  const parts = [
    `1 caller ${worst(each => each.one.lateMs)}`,
    `64 callers ${worst(each => each.many.lateMs)}`,
    `reading ${worst(each => each.read.lateMs)}`,
    `a checkpoint ${worst(each => each.checkpointLateMs)}`,
    `quiet ${worst(each => each.quietLateMs)}`,
  ]
  return `timers at worst late by: ${parts.join(', ')}; memory ${median(list.map(each => each.rss)).toFixed(0)} MB`
}
