// The turn log of a conversation, one line per turn; each opens to its messages verbatim.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../lib/api.ts';
import { post, useDoing, useGet } from '../../lib/api.ts';
import { many, moment, number } from '../../lib/format.ts';
import { useRows } from '../../lib/keys.ts';
import { go, href } from '../../lib/route.ts';
import { Messages } from '../../ui/messages.tsx';
import { Button, Empty, ErrorBox, Shown, Tag, say } from '../../ui/parts.tsx';
import type { Whole } from './truth.tsx';

type Turn = Schema['Turn'];

/** How many turns are shown at once, the newest first. */
const PAGE = 200;

function Words({ name, turn }: { name: string; turn: number }): JSX.Element {
  const said = useGet('/api/conversations/{name}/turns', { path: { name }, query: { turn } });
  return <Shown of={said} what="Loading the messages">{(value) => 'messages' in value && value.messages.length > 0 ? <Messages messages={value.messages} /> : <p class="dim">The messages of this turn no longer exist. They may have been forgotten.</p>}</Shown>;
}

function Line({ name, line, open }: { name: string; line: Turn; open: boolean }): JSX.Element {
  const here = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (open) here.current?.scrollIntoView({ block: 'nearest' });
  }, [open]);
  const tokens = (line.tokens_in ?? 0) + (line.tokens_out ?? 0);
  return (
    <li ref={here}>
      <button type="button" class="row" data-row aria-expanded={open} onClick={() => go(['conversations', name, 'turns'], { open: open ? undefined : line.turn }, true)}>
        <span class="number">{line.turn}</span>
        <span class="exchange"><span class="user">{line.user_summary}</span><span class="assistant">{line.assistant_summary}</span></span>
        <span class="meta">{line.state !== 'summarized' && <Tag kind="warm" title={line.why ?? 'Not summarized yet; the model gets it verbatim'}>{line.state}</Tag>}{moment(line.ts)}{line.model !== undefined && <span>{line.model}</span>}{tokens > 0 && <span>{number(tokens)} tokens</span>}</span>
      </button>
      {open && (
        <div class="because">
          {line.why !== undefined && <p class="warm">Not summarized: {line.why}</p>}
          {(line.refused ?? []).length > 0 && <p class="dim">Rejected, because the messages do not say it: {(line.refused ?? []).join('; ')}</p>}
          <Words name={name} turn={line.turn} />
          <p><a href={href(['conversations', name], { turn: line.turn })}>Facts after this turn</a></p>
        </div>
      )}
    </li>
  );
}

export function Turns({ whole, open, mayWrite, onDone }: { whole: Whole; open: number | undefined; mayWrite: boolean; onDone: () => void }): JSX.Element {
  const rows = useRows<HTMLOListElement>();
  const [pages, setPages] = useState(1);
  const name = whole.conversation;
  const newest = [...whole.turns].reverse();
  const wanted = open === undefined ? 0 : newest.findIndex((one) => one.turn === open) + 1;
  const shown = newest.slice(0, Math.max(pages * PAGE, wanted));
  const raw = whole.turns.filter((one) => one.state !== 'summarized').length;
  const again = useDoing(async () => {
    const done = await post('/api/conversations/{name}/retry', { path: { name }, body: {} });
    const why = [...done.raw.map(([turn, reason]) => `turn ${turn}: ${reason}`), ...done.notes];
    say(`${many(done.summarized.length, 'turn')} summarized, ${number(done.raw.length)} not${why.length > 0 ? ` (${why.join('; ')})` : ''}`);
    onDone();
  });
  if (whole.turns.length === 0) return <Empty title="This conversation has no turns." />;
  return (
    <>
      {raw > 0 && <p class="rawnote"><span>{many(raw, 'turn')} could not be summarized. The model gets {raw === 1 ? 'it' : 'them'} verbatim.</span>{mayWrite && <Button small busy={again.busy} onClick={() => void again.run()}>Summarize again</Button>}</p>}
      {again.failure && <ErrorBox failure={again.failure} />}
      <ol class="rows turns" ref={rows}>{shown.map((line) => <Line key={line.turn} name={name} line={line} open={line.turn === open} />)}</ol>
      {shown.length < newest.length && <p><Button onClick={() => setPages(pages + 1)}>Show more of {number(newest.length)}</Button></p>}
    </>
  );
}
