/**
 * `rillflow/patch`: the operations of patches. `increment`, the most common one, is in `rillflow`, too.
 *
 *     import { append, unset } from 'rillflow/patch'
 *
 *     await store.documents(customers).patch('c-1', { tags: append('vip'), nickname: unset() })
 */
export {
  append,
  increment,
  insert,
  type MergePatch,
  type Operation,
  type Patch,
  remove,
  rename,
  set,
  unset,
} from './documents/patch/patch.ts'
