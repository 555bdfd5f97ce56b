/** Opening a new embedded store in a folder: from the image of an empty database, and without. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Bench } from '../harness/bench.ts'
import { runProgram } from '../harness/program.ts'
import { compare, interleave } from '../harness/rounds.ts'
import type { OpenEmbeddedAnswer } from '../programs/open-embedded.ts'

export const bench: Bench = {
  about: 'CPU time of opening a new embedded store, in milliseconds of a core',
  async run({ quick, report }) {
    const scratch = await mkdtemp(join(tmpdir(), 'rillflow-start-'))
    let opened = 0
    // A file is no folder, so no image can be stored there.
    const open = async (cache: string) => {
      const folder = join(scratch, `store-${++opened}`)
      const env = { XDG_CACHE_HOME: cache, LOCALAPPDATA: cache }
      const { cpuMs } = await runProgram<OpenEmbeddedAnswer>('open-embedded', { folder }, { env })
      await rm(folder, { recursive: true, force: true })
      return { value: cpuMs }
    }
    try {
      // The first one makes the image.
      await open(join(scratch, 'cache'))
      const samples = await interleave(
        [
          { name: 'image', run: () => open(join(scratch, 'cache')) },
          { name: 'none', run: () => open(import.meta.filename) },
        ],
        { rounds: quick ? 5 : 9 },
      )
      const against = { peerName: 'ours', peerNote: 'without the image' } as const
      const result = compare(samples.get('image')!, samples.get('none')!, 'less')
      report.result({ case: 'new embedded store', ...against, unit: 'ms of CPU', ...result })
      report.table('a new embedded store')
    } finally {
      await rm(scratch, { recursive: true, force: true })
    }
  },
}
