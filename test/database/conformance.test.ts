import { engine, openDatabase } from '../support/engines.ts'
import { exerciseDatabase } from './conformance.ts'

exerciseDatabase(engine, openDatabase)
