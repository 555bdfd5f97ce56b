/** The arguments that name one dead letter. */

export const letterArguments = [
  { name: 'consumer', summary: 'Whose it is; handlers are handler:NAME', names: 'dead-letter' },
  { name: 'event', summary: 'The id of its event' },
] as const
