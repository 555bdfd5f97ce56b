/** Why an event is not processed yet. */
export function WhyPanel(_: { event: { id: string } }) {
  return null
}
