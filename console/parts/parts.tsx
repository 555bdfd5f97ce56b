/**
 * The parts that every page is made of. A part knows nothing of the API: it is given what it shows.
 *
 *     parts.tsx   states, panels, facts, tabs, times        table.tsx    rows, virtual from 200 on
 *     chart.tsx   lines over time (uPlot), spark.tsx        dialog.tsx   questions before dangerous actions
 *     icon.tsx    icons and the shapes of states            reading.tsx  loading, empty, failed, in place
 */
import type { ComponentChildren } from 'preact'
import { Copy } from './copy.tsx'
import { exactTime, milliseconds, relative, time } from './format.ts'
import { Icon, type IconName, Shape, type ShapeName } from './icon.tsx'

export type Tone = 'good' | 'warn' | 'bad' | 'wait' | 'run' | 'rest'

export interface StateLook {
  readonly shape: ShapeName
  readonly tone: Tone
  readonly word: string
}

export function toneClass(tone: Tone): string {
  return tone === 'rest' ? 'dim' : `tone-${tone}`
}

/** Shape and word, in a row. */
export function State({ shape, tone, word }: StateLook) {
  return (
    <span class={`state ${toneClass(tone)}`}>
      <Shape name={shape} />
      {word}
    </span>
  )
}

/** Shape and word on a ground, once in a title. */
export function Badge({ shape, tone, word }: StateLook) {
  return (
    <span class={`badge ${tone === 'rest' ? '' : tone}`}>
      <Shape name={shape} />
      {word}
    </span>
  )
}

export function Tag({ children }: { children: ComponentChildren }) {
  return <span class="tag">{children}</span>
}

interface PanelProps {
  title?: ComponentChildren
  sub?: ComponentChildren
  end?: ComponentChildren
  foot?: ComponentChildren
  class?: string
  label?: string
  children: ComponentChildren
}

export function Panel({ title, sub, end, foot, label, children, ...rest }: PanelProps) {
  return (
    <section class={`panel ${rest.class ?? ''}`} aria-label={label}>
      {title !== undefined && (
        <header>
          <h2>{title}</h2>
          {sub !== undefined && <span class="faint cut">{sub}</span>}
          {end !== undefined && <span class="push">{end}</span>}
        </header>
      )}
      {children}
      {foot !== undefined && <footer>{foot}</footer>}
    </section>
  )
}

/** The title of a page: a verdict, what explains it, and the actions. */
export function Head(props: {
  title: ComponentChildren
  sub?: ComponentChildren
  badge?: StateLook | undefined
  children?: ComponentChildren
}) {
  const { title, sub, badge, children } = props
  return (
    <div class="head">
      <h1 tabIndex={-1}>{title}</h1>
      {badge !== undefined && <Badge {...badge} />}
      {sub !== undefined && <span class="sub">{sub}</span>}
      {children !== undefined && <div class="head-actions">{children}</div>}
    </div>
  )
}

export type Fact = readonly [name: string, value: ComponentChildren, kind?: 'mono' | 'wrap'] | undefined

export function Facts({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(
        fact =>
          fact !== undefined && (
            <div class="fact" key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd class={fact[2] ?? ''}>{fact[1] ?? <span class="faint">none</span>}</dd>
            </div>
          ),
      )}
    </dl>
  )
}

/** A time of a row: 02:23:40.112, with the whole one on hover. */
export function At({ at, fine = false }: { at: string | undefined; fine?: boolean }) {
  if (at === undefined) return <span class="faint">never</span>
  return (
    <time dateTime={at} title={exactTime(at)}>
      {time(at)}
      {fine && <span class="ms">{milliseconds(at)}</span>}
    </time>
  )
}

export function Ago({ at }: { at: string | undefined }) {
  if (at === undefined) return <span class="faint">never</span>
  return (
    <time dateTime={at} title={exactTime(at)}>
      {relative(at)}
    </time>
  )
}

export function Id({ id, label, href }: { id: string; label: string; href?: string | undefined }) {
  return (
    <span class="id">
      {href === undefined ? (
        <span class="cut">{id}</span>
      ) : (
        <a class="link cut" href={href}>
          {id}
        </a>
      )}
      <Copy text={id} label={label} />
    </span>
  )
}

interface ButtonProps {
  kind?: 'main' | 'danger' | 'dangerMain' | 'bare'
  icon?: IconName
  small?: boolean
  /** Why it cannot be pressed: shown in words. */
  refused?: string | undefined
  type?: 'button' | 'submit'
  busy?: boolean
  onClick?: () => void
  label?: string
  children?: ComponentChildren
}

const kinds = { main: 'btn-main', danger: 'btn-danger', dangerMain: 'btn-danger-main', bare: 'btn-bare' }

export function Button({ kind, icon, small, refused, type = 'button', busy, onClick, label, children }: ButtonProps) {
  const isOff = refused !== undefined || busy === true
  const classes = ['btn', kind === undefined ? '' : kinds[kind], small ? 'btn-small' : '', children ? '' : 'btn-icon']
  return (
    <button
      type={type}
      class={classes.join(' ')}
      aria-disabled={isOff}
      aria-label={label}
      title={refused ?? label}
      onClick={event => {
        if (isOff) event.preventDefault()
        else onClick?.()
      }}
    >
      {icon !== undefined && <Icon name={icon} />}
      {children}
      {refused !== undefined && <span class="sr">, {refused}</span>}
    </button>
  )
}

export interface Choice<T extends string> {
  readonly value: T
  readonly label: ComponentChildren
}

/** A choice of two to five, as links: it is in the address. */
export function LinkChoice<T extends string>(props: {
  label: string
  value: T
  choices: readonly Choice<T>[]
  href: (value: T) => string
}) {
  return (
    <nav class="seg" aria-label={props.label}>
      {props.choices.map(({ value, label }) => (
        <a key={value} href={props.href(value)} aria-current={value === props.value ? 'true' : undefined}>
          {label}
        </a>
      ))}
    </nav>
  )
}

/** A choice that only this browser keeps. */
export function Choose<T extends string>(props: {
  label: string
  value: T
  choices: readonly Choice<T>[]
  onChoose: (value: T) => void
}) {
  return (
    <fieldset class="seg">
      <legend class="sr">{props.label}</legend>
      {props.choices.map(({ value, label }) => (
        <label key={value}>
          <input
            type="radio"
            name={props.label}
            checked={value === props.value}
            onChange={() => props.onChoose(value)}
          />
          {label}
        </label>
      ))}
    </fieldset>
  )
}

export function Tabs<T extends string>(props: {
  label: string
  value: T
  tabs: readonly (Choice<T> & { count?: number | undefined })[]
  href: (value: T) => string
}) {
  return (
    <nav class="tabs" aria-label={props.label}>
      {props.tabs.map(({ value, label, count }) => (
        <a key={value} href={props.href(value)} aria-current={value === props.value ? 'true' : undefined}>
          {label}
          {count !== undefined && <span class="n">{count}</span>}
        </a>
      ))}
    </nav>
  )
}
