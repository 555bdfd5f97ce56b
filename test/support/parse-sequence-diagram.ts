/**
 * A strict parser of Mermaid's sequence diagrams, for the part of the grammar that the library uses: participants first,
 * each once, then messages between them and notes. Anything else throws.
 */

export interface Sequence {
  /** Displayed names, by id. */
  readonly participants: ReadonlyMap<string, string>
  /** In order, with the displayed names: `request ->> events: append OrderPlaced to order-1`. */
  readonly messages: readonly string[]
  readonly notes: readonly string[]
}

export function parseSequence(text: string): Sequence {
  const [head, ...lines] = text.trimEnd().split('\n')
  if (head !== 'sequenceDiagram') throw new Error(`not a sequence diagram: ${head}`)
  const participants = new Map<string, string>()
  const messages: string[] = []
  const notes: string[] = []
  const nameOf = (id: string, line: string): string => {
    const name = participants.get(id)
    if (name === undefined) throw new Error(`unknown participant ${id}: ${line}`)
    return name
  }
  for (const line of lines) {
    const participant = /^ {2}participant (\w+) as ([^;#\n]*(?:#\d+;[^;#\n]*)*)$/.exec(line)
    const message = /^ {2}(\w+)(->>|-->>|-x)(\w+): ([^;#\n]*(?:#\d+;[^;#\n]*)*)$/.exec(line)
    const note = /^ {2}Note over (\w+): ([^;#\n]+)$/.exec(line)
    if (participant !== null) {
      if (messages.length > 0 || participants.has(participant[1]!)) throw new Error(`participant: ${line}`)
      participants.set(participant[1]!, shown(participant[2]!))
    } else if (message !== null) {
      const [, from, arrow, to, said] = message
      messages.push(`${nameOf(from!, line)} ${arrow} ${nameOf(to!, line)}: ${shown(said!)}`)
    } else if (note !== null) {
      nameOf(note[1]!, line)
      notes.push(note[2]!)
    } else throw new Error(`neither participant nor message nor note: ${line}`)
  }
  return { participants, messages, notes }
}

function shown(text: string): string {
  return text.replaceAll(/#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
}
