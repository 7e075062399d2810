// The edges of an event graph.
import type { Reply } from '../../lib/api.ts';

export type EventGraph = Reply<'/api/events/{id}/graph'>;
export type Edge = EventGraph['edges'][number];

const EDGE_OF_ACT: Record<string, Edge['kind']> = { close: 'closes', confirm: 'confirms', retract: 'retracts' };

/** The edges of the server's answer, and those that follow from the fields of archived events. */
export function allEdges(graph: EventGraph): Edge[] {
  const there = new Set(graph.nodes.map((node) => node.id));
  const found = [...graph.edges];
  for (const node of graph.nodes) {
    const kind = node.act === undefined ? undefined : EDGE_OF_ACT[node.act];
    for (const to of kind ? node.related ?? [] : []) {
      if (kind && there.has(to) && !found.some((edge) => edge.from === node.id && edge.to === to)) found.push({ from: node.id, to, kind });
    }
  }
  return found;
}
