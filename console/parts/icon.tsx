/** Icons (16 px) and the shapes of states (12 px), as paths: no sprite, so that a `<base>` cannot break them. */

const icons = {
  overview: 'M2.5 13.5v-5M6.2 13.5v-11M9.8 13.5v-7M13.5 13.5V5',
  events: 'M6 3.5h8M6 8h8M6 12.5h8M2.6 3.5h.01M2.6 8h.01M2.6 12.5h.01',
  streams: 'M1.5 5.5c2.2-2.4 4.3-2.4 6.5 0s4.3 2.4 6.5 0M1.5 10.5c2.2-2.4 4.3-2.4 6.5 0s4.3 2.4 6.5 0',
  documents: 'M3.5 1.8h5.7l3.3 3.3v9.1h-9zM9 2v3.3h3.3M6 8.5h4M6 11h4',
  projections: 'M8 1.8 14.2 5 8 8.2 1.8 5zM1.8 8 8 11.2 14.2 8M1.8 11 8 14.2 14.2 11',
  subscriptions: 'M3.5 12.5h.01M2.5 7.5a6 6 0 0 1 6 6M2.5 2.8A10.7 10.7 0 0 1 13.2 13.5',
  workflows:
    'M4.9 8a1.6 1.6 0 1 1-3.2 0 1.6 1.6 0 0 1 3.2 0zM14.3 3.6a1.6 1.6 0 1 1-3.2 0 1.6 1.6 0 0 1 3.2 0zM14.3 12.4a1.6 1.6 0 1 1-3.2 0 1.6 1.6 0 0 1 3.2 0zM4.9 8h1.6c1.5 0 1.5-4.4 4.5-4.4M6.5 8c1.5 0 1.5 4.4 4.5 4.4',
  handlers: 'M9 1.5 3.2 9H7.6L7 14.5 12.8 7H8.4z',
  schedules: 'M14.2 8A6.2 6.2 0 1 1 1.8 8a6.2 6.2 0 0 1 12.4 0zM8 4.5V8l2.3 1.6',
  deadLetters: 'M1.8 3.5h12.4v9H1.8zM1.8 4l6.2 5 6.2-5',
  runners: 'M2 2.8h12v4.2H2zM2 9h12v4.2H2zM4.5 4.9h.01M4.5 11.1h.01',
  health: 'M1.5 8.5h3L6.5 3l3 10 2-4.5h3',
  operations: 'M2 4.2l1.3 1.3L5.6 3M2 11.2l1.3 1.3 2.3-2.5M8 4.5h6M8 11.5h6',
  tenants: 'M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z',
  settings:
    'M2 4.5h7M13 4.5h1M2 11.5h1M7 11.5h7M12.8 4.5a1.8 1.8 0 1 1-3.6 0 1.8 1.8 0 0 1 3.6 0zM6.8 11.5a1.8 1.8 0 1 1-3.6 0 1.8 1.8 0 0 1 3.6 0z',
  help: 'M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8M6.2 6.4a1.8 1.8 0 1 1 2.6 1.6c-.5.3-.8.6-.8 1.2M8 11.4v.2',
  search: 'M11.7 7A4.7 4.7 0 1 1 2.3 7a4.7 4.7 0 0 1 9.4 0zM10.5 10.5 14 14',
  copy: 'M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1',
  close: 'm4 4 8 8M12 4l-8 8',
  left: 'M10 3.5 5.5 8l4.5 4.5',
  right: 'M6 3.5 10.5 8 6 12.5',
  up: 'M3.5 10 8 5.5l4.5 4.5',
  down: 'M3.5 6 8 10.5 12.5 6',
  columns: 'M2.5 3.5h11v9h-11zM6.2 3.5v9M9.8 3.5v9',
  play: 'M5 3v10l8-5z',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  retry: 'M13.3 6.5A5.6 5.6 0 1 0 13.5 9.5M13.5 2.8v3.9H9.6',
  menu: 'M2 4.5h12M2 11.5h12',
  why: 'M14.2 8A6.2 6.2 0 1 1 1.8 8a6.2 6.2 0 0 1 12.4 0zM6.2 6.3c.2-2.3 3.7-2.2 3.6 0 0 1.3-1.8 1.4-1.8 2.8M8 11.3h.01',
  stop: 'M4 4h8v8H4z',
  filter: 'M2 4h12M4.5 8h7M6.5 12h3',
  theme:
    'M10.8 8a2.8 2.8 0 1 1-5.6 0 2.8 2.8 0 0 1 5.6 0zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9',
  plus: 'M8 3v10M3 8h10',
  check: 'm3 8.5 3.2 3.2L13 4.8',
  trash: 'M2.5 4h11M6 4V2.5h4V4M4 4l.7 9.5h6.6L12 4',
} as const

const shapes = {
  done: 'M11.2 6A5.2 5.2 0 1 1 .8 6a5.2 5.2 0 0 1 10.4 0zM3.7 6.2l1.6 1.6 3-3.4',
  running: 'M6 .8A5.2 5.2 0 1 1 .8 6',
  queued: 'M10.7 6A4.7 4.7 0 1 1 1.3 6a4.7 4.7 0 0 1 9.4 0z',
  waiting: 'M11.2 6A5.2 5.2 0 1 1 .8 6a5.2 5.2 0 0 1 10.4 0zM6 3.2V6l1.8 1.3',
  retrying: 'M10.7 4.8A5 5 0 1 0 11 7.2M10.9 1.6v3.2H7.7',
  failed: 'M6 .6 11.4 6 6 11.4.6 6zM4.5 4.5l3 3M7.5 4.5l-3 3',
  paused: 'M3.8 2v8M8.2 2v8',
  parked: 'M2 5.5h8v5.2H2zM3.8 5.5V3.6a2.2 2.2 0 0 1 4.4 0v1.9',
  none: 'M2.5 6h7',
  behind: 'M6 1.2 11.3 10.6H.7zM6 4.8v2.4M6 9h.01',
  cross: 'm2.5 2.5 7 7M9.5 2.5l-7 7',
} as const

export type IconName = keyof typeof icons
export type ShapeName = keyof typeof shapes

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="i" viewBox="0 0 16 16" aria-hidden="true">
      <path d={icons[name]} />
    </svg>
  )
}

/** The shape of a state; the word stands next to it. */
export function Shape({ name, tone = '' }: { name: ShapeName; tone?: string }) {
  return (
    <svg class={`st st-${name} ${tone}`} viewBox="0 0 12 12" aria-hidden="true">
      <path d={shapes[name]} />
    </svg>
  )
}

/** A shape inside a drawing, at its upper left corner. */
export function ShapeAt({ name, tone, x, y }: { name: ShapeName; tone: string; x: number; y: number }) {
  return (
    <svg class={`st st-${name} ${tone}`} x={x} y={y} width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
      <path d={shapes[name]} />
    </svg>
  )
}
