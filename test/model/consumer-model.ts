/**
 * A consumer without a database: one row, its dead letters, its effects, and two workers that remember their leases.
 *
 *     take ──► lease ──► begin ──(anything may happen here)──► end, or die
 */

export type WorkerName = 'a' | 'b'

export interface DeadLetterModel {
  state: 'open' | 'retrying' | 'replayed' | 'resolved'
  attempts: number
  isRequested: boolean
  fence: number
}

export interface HeldLease {
  readonly fence: number
  cursor: number
  attempts: number
}

export type Job =
  | {
      readonly kind: 'batch'
      readonly fence: number
      readonly positions: readonly number[]
      readonly fails: ReadonlySet<number>
    }
  | { readonly kind: 'replay'; readonly fence: number; readonly position: number; readonly fails: boolean }

export interface Outcome {
  readonly processed: number
  readonly checkpoint: number
  readonly attempts: number
  readonly isPaused: boolean
}

interface Worker {
  lease?: HeldLease | undefined
  job?: Job | undefined
}

export class ConsumerModel {
  readonly workers: Record<WorkerName, Worker> = { a: {}, b: {} }
  /** The positions of the log, and the start of this consumer. */
  readonly log: number[] = []
  readonly deadLetters = new Map<number, DeadLetterModel>()
  readonly effects: number[] = []
  readonly resets: number[] = []
  /** Events skipped by a reset to a position after them. */
  readonly leftOut = new Set<number>()
  readonly retries: number
  checkpoint: number
  attempts = 0
  isWaiting = false
  isPaused = false
  owner: WorkerName | undefined
  isExpired = false
  /** The holder of the valid lease; undefined if there is none. */
  fence: number | undefined

  constructor(start: number, retries: number) {
    this.checkpoint = start
    this.retries = retries
  }

  get holder(): WorkerName | undefined {
    return this.isExpired ? undefined : this.owner
  }

  refusal(worker: WorkerName): 'paused' | 'leasedByOther' | undefined {
    if (this.isPaused) return 'paused'
    return this.holder !== undefined && this.holder !== worker ? 'leasedByOther' : undefined
  }

  take(worker: WorkerName, fence: number): void {
    this.owner = worker
    this.isExpired = false
    this.fence = fence
    this.workers[worker].lease = { fence, cursor: this.checkpoint, attempts: this.attempts }
  }

  release(worker: WorkerName): void {
    if (this.workers[worker].lease?.fence === this.fence) this.owner = undefined
    this.workers[worker].lease = undefined
  }

  resume(): void {
    this.isPaused = false
    this.#begin(this.checkpoint)
  }

  reset(position: number): void {
    this.resets.push(position)
    for (const each of this.log) if (each > this.checkpoint && each <= position) this.leftOut.add(each)
    this.#begin(position)
    for (const [at, deadLetter] of this.deadLetters)
      if (at > position && (deadLetter.state === 'open' || deadLetter.state === 'retrying'))
        close(deadLetter, 'resolved')
  }

  #begin(checkpoint: number): void {
    Object.assign(this, { checkpoint, attempts: 0, isWaiting: false, owner: undefined, fence: undefined })
  }

  /** The events that a worker would read next. */
  page(worker: WorkerName, limit: number): number[] {
    const { cursor } = this.workers[worker].lease!
    return this.log.filter(position => position > cursor).slice(0, limit)
  }

  endBatch(worker: WorkerName, job: Job & { kind: 'batch' }): Outcome | 'lease_lost' {
    const me = this.workers[worker]
    me.job = undefined
    if (job.fence !== this.fence) {
      me.lease = undefined
      return 'lease_lost'
    }
    const processed = this.#apply(job, me.lease!.attempts)
    const { checkpoint, attempts, isPaused } = this
    Object.assign(me.lease!, { cursor: checkpoint, attempts })
    return { processed, checkpoint, attempts, isPaused }
  }

  #apply({ positions, fails, fence }: Job & { kind: 'batch' }, attemptsBefore: number): number {
    const at = positions.findIndex(position => fails.has(position))
    const good = at < 0 ? positions : positions.slice(0, at)
    this.effects.push(...good)
    this.#moveTo(good.at(-1) ?? this.checkpoint)
    if (at < 0) return positions.length
    const failed = positions[at]!
    const attempt = at === 0 ? attemptsBefore + 1 : 1
    if (attempt <= this.retries) {
      this.#moveTo(failed - 1)
      Object.assign(this, { attempts: attempt, isWaiting: true })
      return at
    }
    this.#setAside(failed, attempt, fence)
    // Bad events rarely come alone: after the first of a page, tried once, the others are processed in the same call.
    if (at > 0 || attemptsBefore > 0 || this.isPaused) return at + 1
    for (const position of positions.slice(1)) {
      if (fails.has(position)) this.#setAside(position, 1, fence)
      else this.effects.push(position)
      this.#moveTo(position)
    }
    return positions.length
  }

  #moveTo(checkpoint: number): void {
    Object.assign(this, { checkpoint, attempts: 0, isWaiting: false })
  }

  #setAside(position: number, attempts: number, fence: number): void {
    const known = this.deadLetters.get(position)
    const isRequested = known?.state === 'open' && known.isRequested
    this.deadLetters.set(position, { state: 'open', attempts: (known?.attempts ?? 0) + attempts, isRequested, fence })
    this.#moveTo(position)
  }

  /** The dead letter that is taken, if there is one. */
  beginReplay(worker: WorkerName, fails: boolean): Job | 'lease_lost' | undefined {
    const me = this.workers[worker]
    const { fence } = me.lease!
    for (const deadLetter of this.deadLetters.values())
      if (deadLetter.state === 'retrying' && deadLetter.isRequested && deadLetter.fence <= fence)
        deadLetter.state = 'open'
    if (fence !== this.fence) {
      me.lease = undefined
      return 'lease_lost'
    }
    const due = [...this.deadLetters].filter(([, deadLetter]) => deadLetter.state === 'open' && deadLetter.isRequested)
    const position = due.map(([at]) => at).sort((x, y) => (x < y ? -1 : 1))[0]
    if (position === undefined) return undefined
    Object.assign(this.deadLetters.get(position)!, { state: 'retrying', fence })
    me.job = { kind: 'replay', fence, position, fails }
    return me.job
  }

  endReplay(worker: WorkerName, { fence, position, fails }: Job & { kind: 'replay' }): boolean | 'lease_lost' {
    const me = this.workers[worker]
    const deadLetter = this.deadLetters.get(position)!
    me.job = undefined
    if (fence !== this.fence || deadLetter.state !== 'retrying' || deadLetter.fence !== fence) {
      me.lease = undefined
      return 'lease_lost'
    }
    close(deadLetter, fails ? 'open' : 'replayed')
    deadLetter.attempts++
    if (!fails) this.effects.push(position)
    return !fails
  }

  /** The dead letter as an operator finds it: one whose worker has lost its lease is open. False if it is not. */
  open(position: number): boolean {
    const deadLetter = this.deadLetters.get(position)!
    const isLeft = deadLetter.fence !== this.fence || this.holder === undefined
    if (deadLetter.state === 'retrying' && isLeft) deadLetter.state = 'open'
    return deadLetter.state === 'open'
  }

  resolve(position: number): void {
    close(this.deadLetters.get(position)!, 'resolved')
  }

  /** How often an event may have been applied: once, and once more for each reset to before it. */
  maxEffects(position: number): number {
    return 1 + this.resets.filter(reset => reset < position).length
  }
}

function close(deadLetter: DeadLetterModel, state: DeadLetterModel['state']): void {
  deadLetter.state = state
  deadLetter.isRequested = false
}
