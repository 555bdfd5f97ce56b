/** What the palette finds: things of the store by bounded look-ups side by side, pages, and actions. */
import { refusedFor, request } from '../api/api.ts'
import { feed } from '../api/live.ts'
import { pageUrl } from '../api/place.ts'
import { relative } from '../parts/format.ts'
import type { IconName } from '../parts/icon.tsx'
import { railGroups } from './rail.tsx'
import { say } from './said.tsx'
import { nextTheme } from './taste.ts'

export interface Found {
  readonly key: string
  readonly group: 'Go to' | 'Do' | 'Pages'
  readonly icon: IconName
  readonly label: string
  readonly detail: string
  readonly href?: string
  readonly run?: () => unknown
  readonly command?: string
  readonly refused?: string | undefined
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export async function findThings(text: string, signal: AbortSignal): Promise<Found[]> {
  if (text === '') return []
  if (uuid.test(text)) return findById(text, signal)
  const position = /^#?(\d+)$/.exec(text)?.[1]
  const found = await Promise.all([
    position === undefined ? [] : findPosition(position, signal),
    findStreams(text, signal),
    findConsumers(text, signal),
    findHandlers(text, signal),
  ])
  return found.flat()
}

export function pagesMatching(text: string): Found[] {
  const wanted = text.toLowerCase()
  const pages = railGroups
    .flatMap(([, group]) => group)
    .map(page => ({
      key: page.path,
      group: 'Pages' as const,
      icon: page.icon,
      label: page.label,
      detail: `g ${page.key}`,
      href: pageUrl(page.path),
    }))
  const actions: Found[] = [
    {
      key: 'settings',
      group: 'Pages',
      icon: 'settings',
      label: 'Settings',
      detail: 'theme, time zone, keys',
      href: pageUrl('/settings'),
    },
    { key: 'theme', group: 'Do', icon: 'theme', label: 'Change the theme', detail: 't', run: nextTheme },
    {
      key: 'pause',
      group: 'Do',
      icon: 'pause',
      label: 'Pause or continue live',
      detail: 'p',
      run: () => feed.togglePause(),
    },
  ]
  return [...pages, ...actions]
    .filter(({ label }) => label.toLowerCase().includes(wanted))
    .sort((a, b) => a.group.localeCompare(b.group))
}

async function findById(id: string, signal: AbortSignal): Promise<Found[]> {
  const [event, workflow] = await Promise.all([
    quiet(request('GET /events/:id', { parameters: { id }, signal })),
    quiet(request('GET /workflows/:id', { parameters: { id }, signal })),
  ])
  return [
    ...(event === undefined ? [] : [eventFound(event.data)]),
    ...(workflow?.data.startedAt === undefined
      ? []
      : [
          {
            key: `w ${id}`,
            group: 'Go to' as const,
            icon: 'workflows' as const,
            label: id,
            detail: `workflow, ${workflow.data.state}`,
            href: pageUrl(`/workflows/${id}`),
            command: `rillflow workflows status ${id}`,
          },
        ]),
  ]
}

async function findPosition(position: string, signal: AbortSignal): Promise<Found[]> {
  const event = await quiet(request('GET /events/at/:position', { parameters: { position }, signal }))
  return event === undefined ? [] : [eventFound(event.data)]
}

function eventFound(event: {
  id: string
  type: string
  position: number
  stream: string
  version: number
  createdAt: string
}): Found {
  return {
    ...{ key: `e ${event.id}`, group: 'Go to', icon: 'events', label: `#${event.position} ${event.type}` },
    detail: `${event.stream}@${event.version}, ${relative(event.createdAt)}`,
    href: pageUrl('/events', { open: event.id }),
    command: `rillflow events show ${event.id}`,
  }
}

async function findStreams(prefix: string, signal: AbortSignal): Promise<Found[]> {
  const streams = await quiet(request('GET /streams', { query: { prefix, limit: 5 }, signal }))
  return (streams?.data.items ?? []).map(each => ({
    ...{ key: `s ${each.stream}`, group: 'Go to' as const, icon: 'streams' as const, label: each.stream },
    detail: `stream, version ${each.version}, ${relative(each.lastEventAt)}`,
    href: pageUrl(`/streams/${encodeURIComponent(each.stream)}`),
    command: `rillflow events read ${each.stream}`,
  }))
}

async function findConsumers(text: string, signal: AbortSignal): Promise<Found[]> {
  const consumers = await quiet(request('GET /consumers', { query: { limit: 500 }, signal }))
  const matching = (consumers?.data.items ?? []).filter(each => includes(each.name, text)).slice(0, 5)
  return matching.flatMap(each => [
    {
      ...{
        key: `c ${each.name} ${each.group}`,
        group: 'Go to' as const,
        icon: 'projections' as const,
        label: each.name,
      },
      detail: `${each.kind}, ${each.isPaused ? 'paused' : each.state}, at #${each.checkpoint}`,
      href: pageUrl(`/projections/${encodeURIComponent(each.name)}`),
      command: `rillflow consumers status ${each.name}`,
    },
    {
      ...{
        key: `pause ${each.name} ${each.group}`,
        group: 'Do' as const,
        icon: each.isPaused ? ('play' as const) : ('pause' as const),
      },
      label: `${each.isPaused ? 'Resume' : 'Pause'} ${each.kind} ${each.name}`,
      detail: '',
      refused: refusedFor('operate'),
      run: () => toggle(each.name, each.isPaused),
      command: `rillflow consumers ${each.isPaused ? 'resume' : 'pause'} ${each.name}`,
    },
  ])
}

async function toggle(name: string, isPaused: boolean): Promise<void> {
  try {
    await request(isPaused ? 'POST /consumers/:name/resume' : 'POST /consumers/:name/pause', { parameters: { name } })
    say(isPaused ? `${name} runs again.` : `${name} is paused.`, {
      undo: { label: isPaused ? 'Pause' : 'Resume', run: () => void toggle(name, !isPaused) },
    })
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), { isBad: true })
  }
}

async function findHandlers(text: string, signal: AbortSignal): Promise<Found[]> {
  const handlers = await quiet(request('GET /handlers', { query: { limit: 500 }, signal }))
  const names = [...new Set((handlers?.data.items ?? []).map(each => each.handler))].filter(name =>
    includes(name, text),
  )
  return names.slice(0, 5).map(name => ({
    ...{ key: `h ${name}`, group: 'Go to' as const, icon: 'handlers' as const, label: name, detail: 'handler' },
    href: pageUrl('/handlers', { open: name }),
    command: `rillflow workflows attempts --handler ${name}`,
  }))
}

function includes(name: string, text: string): boolean {
  return name.toLowerCase().includes(text.toLowerCase())
}

/** A look-up that finds nothing, or that this role may not do, is left out. */
async function quiet<T>(found: Promise<T>): Promise<T | undefined> {
  return found.catch(() => undefined)
}
