// An event and its related events: one below the other, the oldest first, with an arc for every edge.
import type { JSX } from 'preact';
import { day, many } from '../../lib/format.ts';
import { useSize } from '../../lib/hooks.ts';
import { href } from '../../lib/route.ts';
import type { Query } from '../../lib/route.ts';
import { classes } from '../../ui/parts.tsx';
import { edges } from './edges.ts';
import type { Edge, Told } from './edges.ts';
import { kind, states } from './words.tsx';
import type { Entry } from './words.tsx';

const ROW = 46;
/** The width of a character, for truncating lines. */
const LETTER = 7.1;
const FIRST_ARC = 14;
const NEXT_ARC = 9;
const MOST_ARCS = 5;

const DOES: Record<Edge['kind'], string> = { supersedes: 'supersedes', closes: 'closes', confirms: 'confirms', retracts: 'retracts', related: 'relates to', compacts: 'compacts' };

function cut(text: string, room: number): string {
  const letters = Math.max(Math.floor(room / LETTER), 8);
  return text.length <= letters ? text : `${text.slice(0, letters - 1).trimEnd()}…`;
}

export function Graph({ told, query }: { told: Told; query: Query }): JSX.Element {
  const [box, size] = useSize<HTMLDivElement>();
  const nodes = told.nodes;
  const at = new Map(nodes.map((node, index) => [node.id, index]));
  const lines = edges(told).filter((edge) => at.has(edge.from) && at.has(edge.to));
  const span = (edge: Edge): number => Math.abs((at.get(edge.from) ?? 0) - (at.get(edge.to) ?? 0));
  const widest = Math.min(Math.max(...lines.map(span), 1), MOST_ARCS);
  const x = FIRST_ARC + widest * NEXT_ARC;
  const y = (id: string): number => (at.get(id) ?? 0) * ROW + ROW / 2;
  const arc = (edge: Edge): string => {
    const [from, to] = [y(edge.from), y(edge.to)];
    const end = to + Math.sign(from - to) * 7;
    if (span(edge) === 1 && edge.kind !== 'related') return `M${x} ${from}L${x} ${end + Math.sign(from - to)}`;
    const out = x - FIRST_ARC - Math.min(span(edge), MOST_ARCS) * NEXT_ARC + 4;
    return `M${x} ${from}C${out} ${from} ${out} ${end} ${x - 5} ${end}`;
  };
  const did = (node: Entry): string => lines.filter((edge) => edge.from === node.id).map((edge) => `${DOES[edge.kind]} ${edge.to}`).join(', ');
  const width = Math.max(size.width, 240);
  const room = width - x - 24;
  return (
    <div class="graph" ref={box}>
      <svg width={width} height={nodes.length * ROW} viewBox={`0 0 ${width} ${nodes.length * ROW}`} role="group" aria-label="Related events, the oldest first">
        <defs>
          <marker id="graph-arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto-start-reverse"><path class="arrow" d="M0 0L6 3L0 6Z" /></marker>
        </defs>
        {lines.map((edge) => <path key={`${edge.from} ${edge.to} ${edge.kind}`} class={classes('edge', edge.kind)} d={arc(edge)} marker-end={edge.kind === 'related' ? undefined : 'url(#graph-arrow)'}><title>{edge.from} {DOES[edge.kind]} {edge.to}</title></path>)}
        {nodes.map((node) => {
          const here = node.id === told.id;
          const does = did(node);
          const said = [`${day(node.ts)}, ${kind(node)}`, node.standing === 'active' ? '' : node.standing, does].filter((one) => one !== '').join(', ');
          return (
            <a key={node.id} class={classes('node', here && 'here', node.standing !== 'active' && 'over')} href={href(['ledger', node.id], query)} aria-current={here ? 'true' : undefined}>
              <rect class="ground" x={x + 11} y={y(node.id) - ROW / 2 + 2} width={Math.max(width - x - 13, 0)} height={ROW - 4} rx="6"><title>{node.content}</title></rect>
              {states(node) ? <circle cx={x} cy={y(node.id)} r={here ? 7 : 5.5} /> : <path class="act" d={`M${x} ${y(node.id) - 6}l6 6-6 6-6-6z`} />}
              <text class="content" x={x + 18} y={y(node.id) - 4}>{cut(node.content, room)}</text>
              <text class="did" x={x + 18} y={y(node.id) + 13}>{cut(said, room)}</text>
            </a>
          );
        })}
      </svg>
      {told.left_out > 0 && <p class="dim small">{many(told.left_out, 'event')} further away {told.left_out === 1 ? 'is' : 'are'} not shown.</p>}
    </div>
  );
}
