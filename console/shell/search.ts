/** The results of the palette: things of the store by bounded look-ups side by side, pages, and actions. */
import { refusedFor, request } from '../api/api.ts'
import { feed } from '../api/live.ts'
import { pageUrl } from '../api/place.ts'
import type { AnswerOf } from '../api/routes.ts'
import type { IconName } from '../parts/icon.tsx'
import { act } from './act.ts'
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

type Thing = AnswerOf<'GET /search'>['items'][number]

const icons: Record<Thing['kind'], IconName> = {
  ...{ event: 'events', stream: 'streams', workflow: 'workflows', execution: 'workflows', consumer: 'projections' },
  ...{ handler: 'handlers', schedule: 'schedules', collection: 'documents', tenant: 'tenants' },
}

const commands: Partial<Record<Thing['kind'], string>> = {
  ...{
    stream: 'rillflow events list --stream',
    workflow: 'rillflow workflows show',
    consumer: 'rillflow consumers status',
  },
  ...{ handler: 'rillflow workflows executions --handler', collection: 'rillflow documents query' },
}

export async function findThings(text: string, signal: AbortSignal): Promise<Found[]> {
  if (text === '') return []
  const [things, actions] = await Promise.all([
    quiet(request('GET /search', { query: { q: text }, signal })),
    findActions(text, signal),
  ])
  const found = things?.data.items ?? []
  return [...found.map(foundOf), ...actions, ...found.flatMap(actionsOf)]
}

function foundOf(thing: Thing): Found {
  const { kind, name } = thing
  const command = commands[kind]
  return {
    ...{
      key: `${kind} ${thing.path}`,
      group: 'Go to',
      icon: icons[kind],
      label: name,
      detail: kind,
      href: hrefOf(thing),
    },
    ...(command !== undefined && { command: `${command} ${name}` }),
  }
}

function hrefOf({ kind, name, path }: Thing): string {
  if (kind === 'handler' || kind === 'schedule' || kind === 'tenant') return pageUrl(`/${kind}s`, { open: name })
  return kind === 'consumer' ? pageUrl(`/projections/${encodeURIComponent(name)}`) : pageUrl(path)
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

/** The actions of the buttons of consumers. */
async function findActions(text: string, signal: AbortSignal): Promise<Found[]> {
  const consumers = await quiet(request('GET /consumers', { query: { limit: 500 }, signal }))
  const matching = (consumers?.data.items ?? []).filter(each => includes(each.name, text) && each.state !== 'inline')
  return matching.slice(0, 5).map(each => ({
    ...{ key: `pause ${each.name} ${each.group}`, group: 'Do', icon: each.isPaused ? 'play' : 'pause', detail: '' },
    label: `${each.isPaused ? 'Resume' : 'Pause'} ${each.kind} ${each.name}`,
    refused: refusedFor('operate'),
    run: () => toggle(each.name, each.isPaused),
    command: `rillflow consumers ${each.isPaused ? 'resume' : 'pause'} ${each.name}`,
  }))
}

/** The actions of a handler or a schedule, as its buttons do them. Its state is not known here: both ways are offered. */
function actionsOf({ kind, name }: Thing): Found[] {
  const action = (verb: string, icon: IconName, command: string, run: () => unknown): Found => ({
    ...{ key: `${verb} ${kind} ${name}`, group: 'Do', icon, label: `${verb} ${kind} ${name}`, detail: '' },
    ...{ command, run, refused: refusedFor('operate') },
  })
  const parameters = { name }
  if (kind === 'handler')
    return [
      action('Pause', 'pause', `rillflow handlers pause ${name}`, () =>
        act('POST /handlers/:name/pause', { parameters, done: `${name} is paused. Its events queue.` }),
      ),
      action('Resume', 'play', `rillflow handlers resume ${name}`, () =>
        act('POST /handlers/:name/resume', { parameters, done: `${name} runs again.` }),
      ),
    ]
  if (kind !== 'schedule') return []
  return [
    action('Run', 'play', `rillflow schedules trigger ${name}`, () =>
      act('POST /schedules/:name/trigger', { parameters, done: `${name} is asked for one more run.` }),
    ),
  ]
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

function includes(name: string, text: string): boolean {
  return name.toLowerCase().includes(text.toLowerCase())
}

/** A look-up that finds nothing, or that this role may not do, is left out. */
async function quiet<T>(found: Promise<T>): Promise<T | undefined> {
  return found.catch(() => undefined)
}
