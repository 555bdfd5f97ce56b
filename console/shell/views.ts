/** Saved views: addresses with filters, under names. Kept in this browser; a link shares one with a colleague. */
import { effect, signal } from '@preact/signals'

export interface View {
  readonly name: string
  /** The path below the base, with its query. */
  readonly path: string
}

const key = 'rillflow.views'
const maxViews = 20

export const views = signal<readonly View[]>(stored())

export function saveView(view: View): void {
  views.value = [...views.value.filter(each => each.name !== view.name), view].slice(-maxViews)
}

export function removeView(name: string): void {
  views.value = views.value.filter(each => each.name !== name)
}

effect(() => {
  try {
    localStorage.setItem(key, JSON.stringify(views.value))
  } catch {
    // A browser without storage forgets them when the tab is closed.
  }
})

function stored(): readonly View[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? '[]')
    const isView = (each: unknown): each is View =>
      typeof (each as View)?.name === 'string' && /^\/(?!\/)/.test(String((each as View).path))
    return Array.isArray(found) ? found.filter(isView).slice(-maxViews) : []
  } catch {
    return []
  }
}
