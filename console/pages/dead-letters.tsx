/** Dead letters: failures that are alike in groups at the left, one of them at the right with its event next to its error. */
import { useMemo, useRef } from 'preact/hooks'
import { useFeed } from '../api/live.ts'
import { useReading } from '../api/reading.ts'
import { plural, relative } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { LinkChoice } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Bars } from '../parts/spark.tsx'
import { useThrottled } from '../parts/throttle.ts'
import { figures } from '../shell/figures.ts'
import { useKeys } from '../shell/keys.ts'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import { DeadLetterView } from './dead-letter.tsx'
import { type DeadLetter, ownerOf } from './dead-letter-owner.ts'

interface Group {
  readonly key: string
  readonly owner: string
  readonly message: string
  readonly fingerprint: string | undefined
  readonly type: string
  readonly members: readonly DeadLetter[]
}

const states = [
  { value: 'open', label: 'Open' },
  { value: 'retrying', label: 'Retrying' },
  { value: 'parked', label: 'Parked' },
  { value: 'resolved', label: 'Resolved' },
  { value: 'replayed', label: 'Replayed' },
] as const

export function DeadLettersPage() {
  useWhere({ label: 'Dead letters' })
  const address = useAddress()
  const { state = 'open', of, workflow, open, group: chosenGroup } = address.query
  const list = useReading('GET /dead-letters', { query: { state, of, correlationId: workflow, limit: 500 } })
  const refresh = useThrottled(list.reload, 1500)
  useFeed(['deadLetters'], refresh)
  const groups = useMemo(() => groupsOf(list.data?.items ?? []), [list.data])
  const group =
    groups.find(each => each.key === chosenGroup) ??
    groups.find(each => each.members.some(member => member.eventId === open)) ??
    groups[0]
  const chosen = group?.members.find(member => member.eventId === open) ?? group?.members[0]
  useMembers(group, chosen, address)
  const count = list.data?.items.length ?? 0
  const isMore = list.data?.next !== null && list.data !== undefined
  return (
    <div class={`letters ${open === undefined && chosenGroup === undefined ? '' : 'has-open'}`}>
      <section class="groups" aria-label="Groups">
        <header>
          <div class="head">
            <h1 tabIndex={-1}>Dead letters</h1>
            <span class="sub">
              {list.data === undefined
                ? ''
                : `${isMore ? `${count}+` : count} ${state} in ${plural(groups.length, 'group')}`}
            </span>
          </div>
          <div class="fit">
            <LinkChoice
              label="State"
              value={state}
              choices={states}
              href={value =>
                address.with({ state: value === 'open' ? undefined : value, open: undefined, group: undefined })
              }
            />
          </div>
          {Object.entries({ of, workflow }).map(
            ([key, value]) =>
              value !== undefined && (
                <span class="term fit" key={key}>
                  <b>{key}:</b>
                  <span class="cut">{value}</span>
                  <a class="term-x" href={address.with({ [key]: undefined })} aria-label={`Remove ${key}`}>
                    <Icon name="close" />
                  </a>
                </span>
              ),
          )}
        </header>
        <Show of={list} rows={8}>
          {() =>
            groups.map(each => (
              <GroupRow
                key={each.key}
                group={each}
                isChosen={each === group}
                href={address.with({ group: each.key, open: each.members[0]?.eventId })}
              />
            ))
          }
        </Show>
      </section>
      {list.data !== undefined && group === undefined && <Nothing state={state} />}
      {group !== undefined && chosen !== undefined && (
        <DeadLetterView
          key={chosen.eventId}
          dead={chosen}
          group={group.members}
          message={group.message}
          fingerprint={group.fingerprint}
          address={address}
          onChange={list.reload}
        />
      )}
    </div>
  )
}

function GroupRow({ group, isChosen, href }: { group: Group; isChosen: boolean; href: string }) {
  const newest = group.members[0]!
  const oldest = group.members.reduce(
    (least, each) => (each.firstFailedAt < least ? each.firstFailedAt : least),
    newest.firstFailedAt,
  )
  return (
    <a class="group" href={href} aria-current={isChosen ? 'true' : undefined}>
      <span class="msg">{group.message}</span>
      <span class="n">{group.members.length}</span>
      <span class="meta">
        <b class="medium dim">{group.owner}</b> on {group.type}
        <br />
        {group.members.length > 1
          ? `first ${relative(oldest)}, last ${relative(newest.lastFailedAt)}`
          : relative(newest.lastFailedAt)}
      </span>
      <Bars counts={histogram(group.members)} />
    </a>
  )
}

/** By owner and fingerprint; those of consumers, which have none, by the message with its numbers and ids left out. */
function groupsOf(list: readonly DeadLetter[]): Group[] {
  const groups = new Map<string, DeadLetter[]>()
  for (const each of list) {
    const key = `${ownerOf(each)} ${each.fingerprint ?? patternOf(each.lastError.message)}`
    groups.set(key, [...(groups.get(key) ?? []), each])
  }
  return [...groups]
    .map(([key, members]) => {
      const sorted = [...members].sort((a, b) => (a.lastFailedAt < b.lastFailedAt ? 1 : -1))
      const first = sorted[0]!
      return {
        key,
        owner: ownerOf(first),
        message: messageOf(sorted),
        fingerprint: first.fingerprint,
        type: first.type,
        members: sorted,
      }
    })
    .sort((a, b) => b.members.length - a.members.length)
}

function patternOf(message: string): string {
  return message.replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/gi, '…')
}

/** The words that all messages of a group have; an ellipsis where they differ. */
function messageOf(members: readonly DeadLetter[]): string {
  const words = members.slice(0, 50).map(each => each.lastError.message.split(' '))
  const first = words[0] ?? []
  if (words.some(each => each.length !== first.length)) return members[0]?.lastError.message ?? ''
  return first.map((word, index) => (words.every(each => each[index] === word) ? word : '…')).join(' ')
}

function histogram(members: readonly DeadLetter[]): number[] {
  const counts = new Array<number>(12).fill(0)
  const times = members.map(each => Date.parse(each.lastFailedAt))
  const from = Math.min(...times)
  const to = Math.max(...times, from + 1)
  for (const at of times) counts[Math.min(11, Math.floor(((at - from) / (to - from)) * 12))]!++
  return counts
}

function useMembers(group: Group | undefined, chosen: DeadLetter | undefined, address: Address): void {
  const state = useRef({ group, chosen, address })
  state.current = { group, chosen, address }
  useKeys(
    useMemo(() => {
      const step = (by: number): void => {
        const { group, chosen, address } = state.current
        const at = (chosen === undefined ? undefined : group?.members.indexOf(chosen)) ?? -1
        const next = group?.members[at + by]
        if (next !== undefined) address.replace({ open: next.eventId })
      }
      return { j: () => step(1), k: () => step(-1) }
    }, []),
  )
}

function Nothing({ state }: { state: string }) {
  const words = {
    open: 'No dead letter is open',
    retrying: 'No dead letter is being retried',
    parked: 'No event is held back by an earlier one of its stream',
    resolved: 'None was resolved',
    replayed: 'None was replayed',
  }
  return (
    <section class="letter">
      <Empty title={words[state as keyof typeof words] ?? 'None'}>
        <p>
          {state === 'open' && figures.value !== undefined
            ? 'Nothing has failed for good. An event comes here when a handler or reader has used up its retries; its lane or stream continues without it.'
            : 'Look at the open ones, or at another state.'}
        </p>
      </Empty>
    </section>
  )
}
