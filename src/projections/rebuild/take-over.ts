export { takeOver } from '../../consumers/row.ts'
