// An event and its related events: one below the other, the oldest first, with an arc for every edge.
import type { JSX } from 'preact';
import { day, plural } from '../../lib/format.ts';
import { useSize } from '../../lib/hooks.ts';
import { href } from '../../lib/route.ts';
import type { Query } from '../../lib/route.ts';
import { classes } from '../../ui/components.tsx';
import { allEdges } from './edges.ts';
import type { Edge, EventGraph } from './edges.ts';
import { typeLabel, isStatement } from './filters.tsx';
import type { Entry } from './filters.tsx';

const ROW_PX = 46;
/** The width of a character, for truncating lines. */
const CHAR_WIDTH_PX = 7.1;
const FIRST_ARC_PX = 14;
const NEXT_ARC_PX = 9;
const MAX_ARCS = 5;

const EDGE_LABELS: Record<Edge['kind'], string> = { supersedes: 'supersedes', closes: 'closes', confirms: 'confirms', retracts: 'retracts', related: 'relates to', compacts: 'compacts' };

function truncate(text: string, room: number): string {
  const letters = Math.max(Math.floor(room / CHAR_WIDTH_PX), 8);
  return text.length <= letters ? text : `${text.slice(0, letters - 1).trimEnd()}…`;
}

export function Graph({ graph, query }: { graph: EventGraph; query: Query }): JSX.Element {
  const [box, size] = useSize<HTMLDivElement>();
  const nodes = graph.nodes;
  const at = new Map(nodes.map((node, index) => [node.id, index]));
  const lines = allEdges(graph).filter((edge) => at.has(edge.from) && at.has(edge.to));
  const span = (edge: Edge): number => Math.abs((at.get(edge.from) ?? 0) - (at.get(edge.to) ?? 0));
  const widest = Math.min(Math.max(...lines.map(span), 1), MAX_ARCS);
  const x = FIRST_ARC_PX + widest * NEXT_ARC_PX;
  const y = (id: string): number => (at.get(id) ?? 0) * ROW_PX + ROW_PX / 2;
  const arc = (edge: Edge): string => {
    const [from, to] = [y(edge.from), y(edge.to)];
    const end = to + Math.sign(from - to) * 7;
    if (span(edge) === 1 && edge.kind !== 'related') return `M${x} ${from}L${x} ${end + Math.sign(from - to)}`;
    const out = x - FIRST_ARC_PX - Math.min(span(edge), MAX_ARCS) * NEXT_ARC_PX + 4;
    return `M${x} ${from}C${out} ${from} ${out} ${end} ${x - 5} ${end}`;
  };
  const edgeText = (node: Entry): string => lines.filter((edge) => edge.from === node.id).map((edge) => `${EDGE_LABELS[edge.kind]} ${edge.to}`).join(', ');
  const width = Math.max(size.width, 240);
  const room = width - x - 24;
  return (
    <div class="graph" ref={box}>
      <svg width={width} height={nodes.length * ROW_PX} viewBox={`0 0 ${width} ${nodes.length * ROW_PX}`} role="group" aria-label="Related events, the oldest first">
        <defs>
          <marker id="graph-arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto-start-reverse"><path class="arrow" d="M0 0L6 3L0 6Z" /></marker>
        </defs>
        {lines.map((edge) => <path key={`${edge.from} ${edge.to} ${edge.kind}`} class={classes('edge', edge.kind)} d={arc(edge)} marker-end={edge.kind === 'related' ? undefined : 'url(#graph-arrow)'}><title>{edge.from} {EDGE_LABELS[edge.kind]} {edge.to}</title></path>)}
        {nodes.map((node) => {
          const here = node.id === graph.id;
          const does = edgeText(node);
          const subtitle = [`${day(node.ts)}, ${typeLabel(node)}`, node.standing === 'active' ? '' : node.standing, does].filter((one) => one !== '').join(', ');
          return (
            <a key={node.id} class={classes('node', here && 'here', node.standing !== 'active' && 'over')} href={href(['ledger', node.id], query)} aria-current={here ? 'true' : undefined}>
              <rect class="ground" x={x + 11} y={y(node.id) - ROW_PX / 2 + 2} width={Math.max(width - x - 13, 0)} height={ROW_PX - 4} rx="6"><title>{node.content}</title></rect>
              {isStatement(node) ? <circle cx={x} cy={y(node.id)} r={here ? 7 : 5.5} /> : <path class="act" d={`M${x} ${y(node.id) - 6}l6 6-6 6-6-6z`} />}
              <text class="content" x={x + 18} y={y(node.id) - 4}>{truncate(node.content, room)}</text>
              <text class="did" x={x + 18} y={y(node.id) + 13}>{truncate(subtitle, room)}</text>
            </a>
          );
        })}
      </svg>
      {graph.left_out > 0 && <p class="dim small">{plural(graph.left_out, 'event')} further away {graph.left_out === 1 ? 'is' : 'are'} not shown.</p>}
    </div>
  );
}
