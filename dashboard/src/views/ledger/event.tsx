// One event: its text, its fields, its source, its related events, and the actions on it.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { useGet } from '../../lib/api.ts';
import { ago, day, label, moment } from '../../lib/format.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import type { Query } from '../../lib/route.ts';
import { Button, Copy, Loading, Shown, Tag } from '../../ui/parts.tsx';
import { Source } from '../../ui/sources.tsx';
import type { Asked } from './acts.tsx';
import { Graph } from './graph.tsx';
import { Standing, Weight, kind, replaced, states } from './words.tsx';
import type { Entry } from './words.tsx';

interface EventProps {
  id: string;
  /** The filters of the list beside it. */
  query: Query;
  today: string | undefined;
  waits: boolean;
  mayWrite: boolean;
  /** The event of the last action here: it causes a reload, also without live updates. */
  after: string | undefined;
  onAsk: (asked: Asked) => void;
}

function Mark({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return <div><dt>{title}</dt><dd>{children}</dd></div>;
}

/** The fields of an event. */
function Marks({ entry, today }: { entry: Entry; today: string | undefined }): JSX.Element {
  const overdue = entry.due !== undefined && today !== undefined && entry.standing === 'active' && entry.due.slice(0, 10) < today;
  return (
    <dl class="marks">
      <Mark title="Recorded">{moment(entry.ts)}</Mark>
      {entry.said !== undefined && entry.said !== entry.ts && <Mark title="Said">{moment(entry.said)}</Mark>}
      {entry.entity !== undefined && <Mark title="Entity"><a href={href(['ledger'], { entity: entry.entity, status: 'any' })}>{entry.entity}</a>{entry.entity_kind !== undefined && ` (${entry.entity_kind})`}</Mark>}
      {entry.due !== undefined && <Mark title="Due"><span class={overdue ? 'warm' : ''}>{day(entry.due)}{today !== undefined && entry.standing === 'active' && `, ${ago(entry.due, today)}`}</span></Mark>}
      {entry.waiting_on !== undefined && <Mark title="Waiting on">{entry.waiting_on}</Mark>}
      {entry.tags !== undefined && entry.tags.length > 0 && <Mark title="Tags">{entry.tags.map((tag) => <a key={tag} class="tag" href={href(['ledger'], { tag: [tag], status: 'any' })}>{tag}</a>)}</Mark>}
      {entry.verified !== entry.ts && states(entry) && <Mark title="Last confirmed">{moment(entry.verified)}</Mark>}
      {entry.origin !== undefined && <Mark title="Origin">{entry.origin}</Mark>}
      {entry.session !== undefined && <Mark title="Session">{entry.session}</Mark>}
      {entry.scope !== undefined && <Mark title="Scope">{entry.scope}</Mark>}
      {entry.note !== undefined && <Mark title="Note">{entry.note}</Mark>}
    </dl>
  );
}

function Actions({ entry, waits, onAsk }: { entry: Entry; waits: boolean; onAsk: (asked: Asked) => void }): JSX.Element | null {
  const of = { id: entry.id, content: entry.content };
  if (entry.standing !== 'active') {
    const by = entry.ended_by;
    return by === undefined || by === entry.id ? null : <div class="buttons"><Button onClick={() => onAsk({ act: 'restore', ...of, by })}>Restore</Button></div>;
  }
  if (waits) {
    return (
      <div class="buttons">
        <Button kind="main" onClick={() => onAsk({ act: 'accept', ...of })}>Confirm</Button>
        <Button onClick={() => onAsk({ act: 'drop', ...of })}>Drop</Button>
      </div>
    );
  }
  if (!states(entry)) return <div class="buttons"><Button onClick={() => onAsk({ act: 'retract', ...of })}>Retract</Button></div>;
  return (
    <div class="buttons">
      {entry.type === 'commitment' && <Button kind="main" onClick={() => onAsk({ act: 'close', ...of })}>Close</Button>}
      <Button onClick={() => onAsk({ act: 'confirm', ...of })}>Confirm</Button>
      <Button onClick={() => onAsk({ act: 'remember', supersedes: entry })}>Supersede</Button>
      <Button onClick={() => onAsk({ act: 'retract', ...of })}>Retract</Button>
    </div>
  );
}

function sentence(entry: Entry): string {
  return { active: '', superseded: 'Superseded by', closed: 'Closed by', retracted: 'Retracted by' }[entry.standing];
}

export function Event({ id, query, today, waits, mayWrite, after, onAsk }: EventProps): JSX.Element {
  const story = useGet('/api/events/{id}', { path: { id } });
  const graph = useGet('/api/events/{id}/graph', { path: { id } });
  const why = useGet('/api/why', { query: { of: id } });
  const again = (): void => {
    story.again();
    graph.again();
    why.again();
  };
  useLive(['ledger'], again);
  useEffect(() => {
    if (after !== undefined) again();
  }, [after]);
  const heading = useRef<HTMLHeadingElement>(null);
  const loaded = story.value !== undefined;
  // Opening an event from the list moves the focus to it; loading its address does not.
  useEffect(() => {
    if (loaded && document.activeElement?.closest('.ledger')) heading.current?.focus({ preventScroll: true });
  }, [id, loaded]);
  return (
    <Shown of={story} what="Loading the event">
      {({ entry, conflicts, stands_for: standsFor, place }) => (
        <>
          <header class="eventhead">
            <p class="meta"><Weight priority={entry.priority} /><span>{label(kind(entry))}</span><Standing entry={entry} />{waits && <Tag kind="warm">unconfirmed</Tag>}<code>{entry.id}</code><Copy text={() => entry.id}>Copy ID</Copy></p>
            <h2 ref={heading} tabIndex={-1}>{entry.content}</h2>
            {entry.standing !== 'active' && entry.ended_by !== undefined && entry.ended_by !== entry.id && <p>{sentence(entry)} <a href={href(['ledger', entry.ended_by], query)}>{entry.ended_by}</a>.</p>}
            {replaced(entry).length > 0 && <p class="dim">Supersedes {replaced(entry).map((one, at) => <span key={one}>{at > 0 && ', '}<a href={href(['ledger', one], query)}>{one}</a></span>)}.</p>}
            {waits && <p class="warm">Only a tool or a stranger said this. It does not count until you confirm it.</p>}
            {conflicts.map((one) => <p key={one.about} class="warm">Contradicts {one.events.filter((other) => other !== entry.id).map((other, at) => <span key={other}>{at > 0 && ', '}<a href={href(['ledger', other], query)}>{other}</a></span>)}. Supersede or retract one of them.</p>)}
          </header>
          {mayWrite ? <Actions entry={entry} waits={waits} onAsk={onAsk} /> : <p class="dim small">Your token is read-only. Log in with the full token to make changes.</p>}
          <Marks entry={entry} today={today} />
          <section class="part" aria-label="Source">
            <h3>Source</h3>
            <Shown of={why} what="Looking up the source">
              {(value) => 'source' in value ? (
                <ul class="sources">
                  {value.quote !== undefined && value.source.text?.includes(value.quote) !== true && <li><blockquote>{value.quote}</blockquote></li>}
                  <Source source={value.source} quote={value.quote} />
                </ul>
              ) : <p class="dim">No source found. It may have been forgotten.</p>}
            </Shown>
            <p class="dim small">Stored in {place}</p>
          </section>
          {standsFor.length > 0 && <p class="dim small">Compacted from {standsFor.length} older lines, which are in the archive.</p>}
          <section class="part" aria-label="Related events">
            <h3>Related events</h3>
            {graph.value ? graph.value.nodes.length > 1 ? <Graph told={graph.value} query={query} /> : <p class="dim">No other event confirms, closes, supersedes or retracts it, and it refers to none.</p> : graph.busy && <Loading what="Loading related events" />}
          </section>
        </>
      )}
    </Shown>
  );
}
