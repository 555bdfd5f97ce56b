/**
 * Projections: read models that follow the log.
 *
 *     projection          SQL of your own, a handler per type of event
 *     documentProjection  events folded into documents, of one stream or of many
 *     tableProjection     columns set and incremented
 *     liveProjection      nothing kept, folded when read
 *            │
 *            ▼  one form: filter, tables, apply
 *     async ──► a consumer: applied soon after the commit, under a lease, checkpoint with effect
 *     inline ─► applied in the append's own transaction, before its positions are drawn
 *     live ───► folded by `get`
 *
 * Guarantees:
 * - What an async projection writes and its checkpoint are one transaction: each event counts once, in position order.
 * - A projection with tables is rebuilt beside the old ones, which serve until the new ones are switched in; the result is
 *   what a fresh build would give, whatever is appended meanwhile.
 * - Tables are made by a sync, or before the first batch where the store may; never per event.
 * - Registered projections belong to one store. Everything of them lives in its schema.
 *
 * Versions: version 2 of `order-totals` is the consumer `order-totals@2` with the tables `…_v2`. Both run side by side
 * until the old one is no longer registered; its row and its tables stay until somebody removes them.
 *
 * What can fail: `ProjectionNotSynced` before anything is applied; a handler, which follows the failure policy; a switch,
 * with `ViewsDepend` or because it cannot get its locks, and then the old tables go on serving.
 */
