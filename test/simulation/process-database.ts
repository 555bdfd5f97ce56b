/**
 * The database as one simulated process has it: each of its statements, and each answer, is a point of the world. Processes
 * share nothing but the tables; hints between them are points, too, and may come twice or never.
 */
import { deferred } from '../../src/core/abort.ts'
import type { Database, Transaction, TransactionOptions } from '../../src/database/database.ts'
import { ConnectionLost, OutcomeUnknown } from '../../src/database/errors.ts'
import type { Fault, SimulatedProcess, World } from './world.ts'

type Isolation = TransactionOptions['isolation']

export interface Connection {
  of(world: World, process: () => SimulatedProcess): Database
  /** Sets the time that the engine reads to the time of the world. */
  setClock(world: World): Promise<void>
  lost(): Error
}

export function onConnection(engine: Database): Connection {
  /** What the engine's clock says; unknown after a rollback, which undoes the setting. */
  let clockAt: number | undefined
  let open: Transaction | undefined

  return {
    lost,
    async setClock(world) {
      const at = world.now()
      if (clockAt === at) return
      const text = `select set_config('rillflow.clock', '${new Date(at).toISOString()}', false)`
      const statement = { label: 'simulation.clock', text, values: [] }
      // In a transaction that has failed it cannot be set, and nothing that is sent there counts.
      const isSet = await (open ?? engine).run(statement).then(
        () => true,
        () => false,
      )
      clockAt = isSet ? at : undefined
    },
    of(world, processOf) {
      /** Resolves when the scheduler has let it through, and its answer too. */
      const send = <T>(what: string, about: unknown, tx: object | null, call: () => Promise<T>): Promise<T> =>
        new Promise((resolve, reject) => {
          const process = processOf()
          if (!process.isAlive) return
          world.add({
            ...{ process, what, about, tx },
            async act(fault) {
              if (fault === 'refuse') return fail(process, tx, reject)
              let answer: () => void
              try {
                const value = await call()
                answer = () => resolve(value)
              } catch (error) {
                answer = () => reject(error)
              }
              if (fault === 'lose') return fail(process, tx, reject)
              // Within a transaction nobody else could do anything meanwhile.
              if (tx !== null || world.random() < 0.6) answer()
              else world.add({ process, what: `answer ${what}`, act: answer })
            },
          })
        })

      const fail = (process: SimulatedProcess, tx: object | null, reject: (error: Error) => void): void => {
        if (tx !== null) process.loseTransaction?.(lost())
        reject(lost())
      }

      return {
        ...engine,
        soleUser: undefined,
        neighbours: neighboursOf(world, processOf),
        run: statement =>
          guarded(statement.label, () =>
            send(statement.label, statement.values, null, () => engine.run<never>(statement)),
          ),
        runArrays: statement =>
          guarded(statement.label, () =>
            send(statement.label, statement.values, null, () => engine.runArrays(statement)),
          ),
        transaction: (work, options) => guarded('transaction', () => transact(work, options?.isolation)),
        async close() {},
      }

      /** In the context of the caller: the engine knows by that who is inside of a transaction. */
      async function guarded<T>(label: string, call: () => Promise<T>): Promise<T> {
        engine.refuseInsideTransaction(label)
        return call()
      }

      function transact<T>(work: (tx: Transaction) => Promise<T>, isolation: Isolation): Promise<T> {
        return new Promise<T>((resolve, reject) => {
          const process = processOf()
          if (!process.isAlive) return
          world.add({
            ...{ process, what: 'begin', tx: null },
            act(fault) {
              if (fault === 'refuse' || fault === 'lose') return reject(lost())
              return new Promise<void>(begun => {
                void hold(process, work, isolation, begun).then(resolve, reject)
              })
            },
          })
        })
      }

      /** `begun` is called when the transaction has the connection; from then on only its points are ready. */
      async function hold<T>(
        process: SimulatedProcess,
        work: (tx: Transaction) => Promise<T>,
        isolation: Isolation,
        begun: () => void,
      ): Promise<T> {
        const token = {}
        let isAnswerLost = false
        let ended: (() => void) | undefined
        const inEngine = async (tx: Transaction): Promise<T> => {
          open = tx
          const broken = deferred<never>()
          broken.promise.catch(() => {})
          process.loseTransaction = broken.reject
          begun()
          try {
            const value = await Promise.race([work(statementsOf(tx, token)), broken.promise])
            isAnswerLost = await Promise.race([commitPoint(process, token), broken.promise])
            return value
          } finally {
            process.loseTransaction = undefined
            // The engine commits, or rolls back: the scheduler waits for that.
            void world.busy(() => new Promise<void>(done => (ended = done)))
          }
        }
        try {
          world.holder = token
          const value = await engine.transaction(inEngine, { timeoutMs: 600_000, isolation })
          if (isAnswerLost) throw new OutcomeUnknown({ eventIds: [], reason: 'it was cut off' })
          return value
        } catch (error) {
          clockAt = undefined
          throw error
        } finally {
          begun()
          open = world.holder = undefined
          ended?.()
          if (!process.isAlive) await new Promise<never>(() => {})
        }
      }

      /** Whether the answer to the commit gets lost on its way back. */
      function commitPoint(process: SimulatedProcess, tx: object): Promise<boolean> {
        return new Promise((resolve, reject) => {
          const act = (fault: Fault['kind'] | undefined): void =>
            fault === 'refuse' ? reject(lost()) : resolve(fault === 'lose')
          world.add({ process, what: 'commit', tx, act })
        })
      }

      function statementsOf(tx: Transaction, token: object): Transaction {
        return {
          ...tx,
          run: statement => send(statement.label, statement.values, token, () => tx.run<never>(statement)),
          runArrays: statement => send(statement.label, statement.values, token, () => tx.runArrays(statement)),
          query: (text, values = []) => send('query', [text, values], token, () => tx.query<never>(text, values)),
          copyIn: (table, columns, rows) => send('copy', rows, token, () => tx.copyIn(table, columns, rows)),
          savepoint: work => savepoint(tx, work),
        }
      }

      /** The engine is at work until the code inside begins, and again after its end. */
      function savepoint<T>(tx: Transaction, work: () => Promise<T>): Promise<T> {
        let begin!: () => void
        void world.busy(() => new Promise<void>(done => (begin = done)))
        let end: (() => void) | undefined
        const inside = async (): Promise<T> => {
          begin()
          try {
            return await work()
          } finally {
            void world.busy(() => new Promise<void>(done => (end = done)))
          }
        }
        const after = (): void => {
          begin()
          end?.()
        }
        return tx.savepoint(inside).then(
          value => {
            after()
            return value
          },
          (error: unknown) => {
            clockAt = undefined
            after()
            throw error
          },
        )
      }
    },
  }
}

function lost(): Error {
  return new ConnectionLost({ reason: 'it was cut off' })
}

/** Instead of calling the others at once, a hint becomes a point for each of them. */
function neighboursOf(world: World, processOf: () => SimulatedProcess): Database['neighbours'] {
  const own = new Set<(channel: string, payload: string) => void>()
  const send = (channel: string, payload: string): void => world.hint(processOf(), channel, payload)
  return Object.assign(own, {
    add(call: (channel: string, payload: string) => void) {
      processOf().listeners.add(call)
      return own
    },
    delete: (call: (channel: string, payload: string) => void) => processOf().listeners.delete(call),
    [Symbol.iterator]: () => [send][Symbol.iterator](),
  })
}
