// The edges of an event graph.
import type { Reply } from '../../lib/api.ts';

export type Told = Reply<'/api/events/{id}/graph'>;
export type Edge = Told['edges'][number];

const BY_ACT: Record<string, Edge['kind']> = { close: 'closes', confirm: 'confirms', retract: 'retracts' };

/** The edges of the server's answer, and those that follow from the fields of archived events. */
export function edges(told: Told): Edge[] {
  const there = new Set(told.nodes.map((node) => node.id));
  const found = [...told.edges];
  for (const node of told.nodes) {
    const does = node.act === undefined ? undefined : BY_ACT[node.act];
    for (const to of does ? node.related ?? [] : []) {
      if (does && there.has(to) && !found.some((edge) => edge.from === node.id && edge.to === to)) found.push({ from: node.id, to, kind: does });
    }
  }
  return found;
}
