/** A component whose code is loaded with its first use. The page around it stays as it is meanwhile. */
import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'

export function later<Props extends object>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  let loaded: ComponentType<Props> | undefined
  return function Later(props: Props) {
    const [Component, setComponent] = useState<ComponentType<Props> | undefined>(() => loaded)
    useEffect(() => {
      if (loaded !== undefined) return
      load()
        .then(component => {
          loaded = component
          setComponent(() => component)
        })
        .catch(() => {})
    }, [])
    return Component === undefined ? null : <Component {...props} />
  }
}
