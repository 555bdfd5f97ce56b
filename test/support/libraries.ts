/**
 * The libraries whose transactions the store joins, each for real.
 *
 *     await using db = await library.open(url)
 *     await db.transaction(async ({ tx, run, nested }) => …)
 *
 * `tx` is what `{ tx }` takes, `theirs` what the library gives, `run` a statement of the user, `nested` the library's own
 * transaction inside of one.
 */
import { MikroORM } from '@mikro-orm/postgresql'
import { PrismaPg } from '@prisma/adapter-pg'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js'
import knex, { type Knex } from 'knex'
import { CamelCasePlugin, CompiledQuery, Kysely, PostgresDialect, type Transaction } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import { DataSource, type EntityManager } from 'typeorm'
import { PrismaClient } from '../../examples/prisma-application/generated/client.ts'
import type { ForeignTransaction } from '../../src/database/transaction.ts'
import {
  type DrizzleTransaction,
  fromDrizzle,
  fromKysely,
  fromPostgresJs,
  fromPrisma,
} from '../../src/integrations/transactions.ts'

export interface Joined {
  readonly tx: ForeignTransaction
  readonly theirs: unknown
  /** A statement without parameters, through the library. */
  run(text: string): Promise<unknown>
  /** Undefined where the library has no savepoints. */
  readonly nested: ((work: (inner: Joined) => Promise<void>) => Promise<void>) | undefined
}

export interface OpenLibrary extends AsyncDisposable {
  transaction(work: (joined: Joined) => Promise<void>): Promise<void>
  /** What a user might give by mistake: the whole database, adapted. */
  readonly outside: ForeignTransaction | undefined
}

export interface Library {
  readonly name: string
  /** The adapter's name, or the expression, that an error shows. Undefined if the handle is taken as it is. */
  readonly use: string | undefined
  /** Its results have been parsed already. */
  readonly parsesItself?: boolean
  open(url: string): Promise<OpenLibrary>
}

const nodePostgres: Library = {
  name: 'pg',
  use: undefined,
  async open(url) {
    const pool = new pg.Pool({ connectionString: url, max: 3 })
    return {
      async transaction(work) {
        const client = await pool.connect()
        const run = (text: string) => client.query(text)
        const nested: Joined['nested'] = async inner => {
          await run('savepoint mine')
          try {
            await inner(joined)
          } catch (error) {
            await run('rollback to savepoint mine')
            throw error
          }
        }
        const joined: Joined = { tx: client, theirs: client, run, nested }
        try {
          await run('begin')
          await work(joined)
          await run('commit')
        } catch (error) {
          await run('rollback')
          throw error
        } finally {
          client.release()
        }
      },
      outside: pool as unknown as ForeignTransaction,
      [Symbol.asyncDispose]: () => pool.end(),
    }
  },
}

interface DrizzleHandle extends DrizzleTransaction {
  transaction(work: (inner: DrizzleHandle) => Promise<void>): Promise<void>
}

function joinedDrizzle(given: unknown): Joined {
  const tx = given as DrizzleHandle
  return {
    tx: fromDrizzle(tx),
    theirs: tx,
    run: async text => tx.execute(sql.raw(text) as never),
    nested: work => tx.transaction(inner => work(joinedDrizzle(inner))),
  }
}

const drizzleOnPg: Library = {
  name: 'Drizzle on pg',
  use: 'fromDrizzle(tx)',
  async open(url) {
    const pool = new pg.Pool({ connectionString: url, max: 3 })
    const db = drizzle(pool)
    return {
      transaction: work => db.transaction(tx => work(joinedDrizzle(tx))),
      outside: fromDrizzle(db as unknown as DrizzleTransaction),
      [Symbol.asyncDispose]: () => pool.end(),
    }
  },
}

const drizzleOnPostgresJs: Library = {
  name: 'Drizzle on postgres.js',
  use: 'fromDrizzle(tx)',
  async open(url) {
    const client = postgres(url, { max: 3 })
    const db = drizzlePostgresJs(client)
    return {
      transaction: work => db.transaction(tx => work(joinedDrizzle(tx))),
      outside: fromDrizzle(db as unknown as DrizzleTransaction),
      [Symbol.asyncDispose]: () => client.end(),
    }
  },
}

const kysely: Library = {
  name: 'Kysely',
  use: 'fromKysely(trx)',
  async open(url) {
    const pool = new pg.Pool({ connectionString: url, max: 3 })
    const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] })
    const joined = (trx: Transaction<unknown>): Joined => {
      const run = (text: string) => trx.executeQuery(CompiledQuery.raw(text))
      return { tx: fromKysely(trx), theirs: trx, run, nested: undefined }
    }
    return {
      transaction: work => db.transaction().execute(trx => work(joined(trx))),
      outside: fromKysely(db as Transaction<unknown>),
      [Symbol.asyncDispose]: () => db.destroy(),
    }
  },
}

const kyselyControlled: Library = {
  name: 'Kysely, controlled',
  use: 'fromKysely(trx)',
  async open(url) {
    const pool = new pg.Pool({ connectionString: url, max: 3 })
    const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) })
    return {
      async transaction(work) {
        const trx = await db.startTransaction().execute()
        const run = (text: string) => trx.executeQuery(CompiledQuery.raw(text))
        const nested: Joined['nested'] = async inner => {
          const at = await trx.savepoint('mine').execute()
          try {
            await inner({ ...joined, tx: fromKysely(at) })
          } catch (error) {
            await at.rollbackToSavepoint('mine').execute()
            throw error
          }
        }
        const joined: Joined = { tx: fromKysely(trx), theirs: trx, run, nested }
        try {
          await work(joined)
          await trx.commit().execute()
        } catch (error) {
          await trx.rollback().execute()
          throw error
        }
      },
      outside: undefined,
      [Symbol.asyncDispose]: () => db.destroy(),
    }
  },
}

const prisma: Library = {
  name: 'Prisma',
  use: 'fromPrisma(tx)',
  parsesItself: true,
  async open(url) {
    const client = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 3 }) })
    return {
      transaction: work =>
        client.$transaction(
          tx => {
            const run = (text: string) => tx.$executeRawUnsafe(text)
            return work({ tx: fromPrisma(tx), theirs: tx, run, nested: undefined })
          },
          { timeout: 60_000 },
        ),
      outside: fromPrisma(client as unknown as Parameters<typeof fromPrisma>[0]),
      [Symbol.asyncDispose]: () => client.$disconnect(),
    }
  },
}

function postgresJs(prepare: boolean): Library {
  return {
    name: prepare ? 'postgres.js' : 'postgres.js behind a pooler',
    use: 'fromPostgresJs(sql)',
    async open(url) {
      // Parsers of the user, for the types that the store reads.
      const shout = { to: 0, serialize: String, parse: (text: string) => `<${text}>` }
      const types = {
        bigint: { ...shout, from: [20] },
        date: { ...shout, from: [1184] },
        json: { ...shout, from: [114] },
      }
      const client = postgres(url, { max: 3, prepare, types })
      const joined = (tx: postgres.TransactionSql<never>): Joined => ({
        tx: fromPostgresJs(tx, { prepare }),
        theirs: tx,
        run: text => tx.unsafe(text),
        nested: work => tx.savepoint(inner => work(joined(inner as never))) as Promise<void>,
      })
      return {
        transaction: work => client.begin(tx => work(joined(tx as never))) as Promise<void>,
        outside: fromPostgresJs(client as unknown as Parameters<typeof fromPostgresJs>[0]),
        [Symbol.asyncDispose]: () => client.end(),
      }
    },
  }
}

async function joinedKnex(trx: Knex.Transaction, theirs: unknown = trx): Promise<Joined> {
  return {
    tx: (await trx.client.acquireConnection()) as pg.Client,
    theirs,
    run: async text => trx.raw(text),
    nested: work => trx.transaction(async inner => work(await joinedKnex(inner))),
  }
}

const knexLibrary: Library = {
  name: 'Knex',
  use: 'await trx.client.acquireConnection()',
  async open(url) {
    const db = knex({ client: 'pg', connection: url, pool: { min: 0, max: 3 } })
    return {
      transaction: work => db.transaction(async trx => work(await joinedKnex(trx))),
      outside: undefined,
      [Symbol.asyncDispose]: () => db.destroy(),
    }
  },
}

const typeOrm: Library = {
  name: 'TypeORM',
  use: 'await manager.queryRunner.connect()',
  async open(url) {
    const db = await new DataSource({ type: 'postgres', url, poolSize: 3 }).initialize()
    const joined = async (manager: EntityManager): Promise<Joined> => ({
      tx: (await manager.queryRunner!.connect()) as pg.Client,
      theirs: manager,
      run: text => manager.query(text),
      nested: work => manager.transaction(async inner => work(await joined(inner))),
    })
    return {
      transaction: work => db.transaction(async manager => work(await joined(manager))),
      outside: undefined,
      [Symbol.asyncDispose]: () => db.destroy(),
    }
  },
}

const mikroOrm: Library = {
  name: 'MikroORM',
  use: 'await em.getTransactionContext().client.acquireConnection()',
  async open(url) {
    const discovery = { warnWhenNoEntities: false }
    const orm = await MikroORM.init({ clientUrl: url, entities: [], discovery, pool: { min: 0, max: 3 } })
    return {
      transaction: work =>
        orm.em.fork().transactional(async em => {
          const trx = em.getTransactionContext<Knex.Transaction>()!
          await work({ ...(await joinedKnex(trx, em)), run: text => em.execute(text) })
        }),
      outside: undefined,
      [Symbol.asyncDispose]: () => orm.close(),
    }
  },
}

export const libraries: readonly Library[] = [
  ...[nodePostgres, drizzleOnPg, drizzleOnPostgresJs, kysely, kyselyControlled, prisma],
  ...[postgresJs(true), postgresJs(false), knexLibrary, typeOrm, mikroOrm],
]
