// The turn log of a conversation, one line per turn; each opens to its messages verbatim.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { plural, moment, number } from '../../lib/format.ts';
import { useRows } from '../../lib/keyboard.ts';
import { go, href } from '../../lib/route.ts';
import { Messages } from '../../ui/messages.tsx';
import { Button, EmptyState, ErrorBox, RequestView, Tag, showToast } from '../../ui/components.tsx';
import type { Conversation } from './base-truth.tsx';

type Turn = Schema['Turn'];

/** How many turns are shown at once, the newest first. */
const PAGE = 200;

function TurnMessages({ name, turn }: { name: string; turn: number }): JSX.Element {
  const messages = useGet('/api/conversations/{name}/turns', { path: { name }, query: { turn } });
  return <RequestView of={messages} what="Loading the messages">{(value) => 'messages' in value && value.messages.length > 0 ? <Messages messages={value.messages} /> : <p class="dim">The messages of this turn no longer exist. They may have been forgotten.</p>}</RequestView>;
}

function TurnLine({ name, line, open }: { name: string; line: Turn; open: boolean }): JSX.Element {
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
          <TurnMessages name={name} turn={line.turn} />
          <p><a href={href(['conversations', name], { turn: line.turn })}>Facts after this turn</a></p>
        </div>
      )}
    </li>
  );
}

export function Turns({ whole, open, mayWrite, onDone }: { whole: Conversation; open: number | undefined; mayWrite: boolean; onDone: () => void }): JSX.Element {
  const rows = useRows<HTMLOListElement>();
  const [pages, setPages] = useState(1);
  const name = whole.conversation;
  const newest = [...whole.turns].reverse();
  const wanted = open === undefined ? 0 : newest.findIndex((one) => one.turn === open) + 1;
  const shown = newest.slice(0, Math.max(pages * PAGE, wanted));
  const raw = whole.turns.filter((one) => one.state !== 'summarized').length;
  const retry = useAction(async () => {
    const done = await post('/api/conversations/{name}/retry', { path: { name }, body: {} });
    const why = [...done.raw.map(([turn, reason]) => `turn ${turn}: ${reason}`), ...done.notes];
    showToast(`${plural(done.summarized.length, 'turn')} summarized, ${number(done.raw.length)} not${why.length > 0 ? ` (${why.join('; ')})` : ''}`);
    onDone();
  });
  if (whole.turns.length === 0) return <EmptyState title="This conversation has no turns." />;
  return (
    <>
      {raw > 0 && <p class="rawnote"><span>{plural(raw, 'turn')} could not be summarized. The model gets {raw === 1 ? 'it' : 'them'} verbatim.</span>{mayWrite && <Button small busy={retry.busy} onClick={() => void retry.run()}>Summarize again</Button>}</p>}
      {retry.failure && <ErrorBox failure={retry.failure} />}
      <ol class="rows turns" ref={rows}>{shown.map((line) => <TurnLine key={line.turn} name={name} line={line} open={line.turn === open} />)}</ol>
      {shown.length < newest.length && <p><Button onClick={() => setPages(pages + 1)}>Show more of {number(newest.length)}</Button></p>}
    </>
  );
}
