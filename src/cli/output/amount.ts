/** Times, durations, counts and sizes as people read them. */

/** `5s ago`, `in 3m`; the date if it is more than 30 days away. */
export function ago(time: Date | undefined, now: Date): string | undefined {
  if (time === undefined) return undefined
  const ms = now.getTime() - time.getTime()
  if (Math.abs(ms) >= 30 * day) return time.toISOString().slice(0, 10)
  if (ms > -500 && ms < 1000) return 'now'
  return ms < 0 ? `in ${duration(-ms)}` : `${duration(ms)} ago`
}

const second = 1000
const minute = 60 * second
const hour = 60 * minute
const day = 24 * hour

export function duration(ms: number): string {
  if (ms < second) return `${Math.round(ms)}ms`
  if (ms < 10 * second) return `${(ms / second).toFixed(1)}s`
  if (ms < minute) return `${Math.round(ms / second)}s`
  if (ms < hour) return `${Math.floor(ms / minute)}m${pad((ms % minute) / second)}s`
  if (ms < day) return `${Math.floor(ms / hour)}h${pad((ms % hour) / minute)}m`
  return `${Math.floor(ms / day)}d${pad((ms % day) / hour)}h`
}

function pad(value: number): string {
  return String(Math.floor(value)).padStart(2, '0')
}

/** `1 event`, `3 events`, `12,345 events`. */
export function count(number: number, one: string, many: string = `${one}s`): string {
  return `${digits(number)} ${number === 1 ? one : many}`
}

export function digits(number: number): string {
  return String(number).replaceAll(/\B(?=(\d{3})+$)/g, ',')
}

/** `12:30:05`, in the time zone of the process. */
export function clockTime(time: Date): string {
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(pad).join(':')
}

/** `812 B`, `4.2 MB`. */
export function bytes(size: number): string {
  const power = size < 1000 ? 0 : Math.min(sizes.length - 1, Math.floor(Math.log10(size) / 3))
  return `${power === 0 ? size : (size / 1000 ** power).toFixed(1)} ${sizes[power]}`
}

const sizes = ['B', 'kB', 'MB', 'GB', 'TB']
