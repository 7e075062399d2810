// One event: its text, its fields, its source, its related events, and the actions on it.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { useGet } from '../../lib/api.ts';
import { relativeDay, day, label, moment } from '../../lib/format.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import type { Query } from '../../lib/route.ts';
import { Button, CopyButton, Loading, RequestView, Tag } from '../../ui/components.tsx';
import { Source } from '../../ui/sources.tsx';
import type { PendingAction } from './actions.tsx';
import { Graph } from './graph.tsx';
import { StateTag, PriorityTag, typeLabel, supersededIds, isStatement } from './filters.tsx';
import type { Entry } from './filters.tsx';

interface EventPanelProps {
  id: string;
  /** The filters of the list beside it. */
  query: Query;
  today: string | undefined;
  unconfirmed: boolean;
  mayWrite: boolean;
  /** The event of the last action here: it causes a reload, also without live updates. */
  lastAction: string | undefined;
  onAction: (action: PendingAction) => void;
}

function Detail({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return <div><dt>{title}</dt><dd>{children}</dd></div>;
}

/** The fields of an event. */
function Details({ entry, today }: { entry: Entry; today: string | undefined }): JSX.Element {
  const overdue = entry.due !== undefined && today !== undefined && entry.standing === 'active' && entry.due.slice(0, 10) < today;
  return (
    <dl class="marks">
      <Detail title="Recorded">{moment(entry.ts)}</Detail>
      {entry.said !== undefined && entry.said !== entry.ts && <Detail title="Said">{moment(entry.said)}</Detail>}
      {entry.entity !== undefined && <Detail title="Entity"><a href={href(['ledger'], { entity: entry.entity, status: 'any' })}>{entry.entity}</a>{entry.entity_kind !== undefined && ` (${entry.entity_kind})`}</Detail>}
      {entry.due !== undefined && <Detail title="Due"><span class={overdue ? 'warm' : ''}>{day(entry.due)}{today !== undefined && entry.standing === 'active' && `, ${relativeDay(entry.due, today)}`}</span></Detail>}
      {entry.waiting_on !== undefined && <Detail title="Waiting on">{entry.waiting_on}</Detail>}
      {entry.tags !== undefined && entry.tags.length > 0 && <Detail title="Tags">{entry.tags.map((tag) => <a key={tag} class="tag" href={href(['ledger'], { tag: [tag], status: 'any' })}>{tag}</a>)}</Detail>}
      {entry.verified !== entry.ts && isStatement(entry) && <Detail title="Last confirmed">{moment(entry.verified)}</Detail>}
      {entry.origin !== undefined && <Detail title="Origin">{entry.origin}</Detail>}
      {entry.session !== undefined && <Detail title="Session">{entry.session}</Detail>}
      {entry.scope !== undefined && <Detail title="Scope">{entry.scope}</Detail>}
      {entry.note !== undefined && <Detail title="Note">{entry.note}</Detail>}
    </dl>
  );
}

function Actions({ entry, unconfirmed, onAction }: { entry: Entry; unconfirmed: boolean; onAction: (action: PendingAction) => void }): JSX.Element | null {
  const of = { id: entry.id, content: entry.content };
  if (entry.standing !== 'active') {
    const by = entry.ended_by;
    return by === undefined || by === entry.id ? null : <div class="buttons"><Button onClick={() => onAction({ act: 'restore', ...of, by })}>Restore</Button></div>;
  }
  if (unconfirmed) {
    return (
      <div class="buttons">
        <Button kind="main" onClick={() => onAction({ act: 'accept', ...of })}>Confirm</Button>
        <Button onClick={() => onAction({ act: 'drop', ...of })}>Drop</Button>
      </div>
    );
  }
  if (!isStatement(entry)) return <div class="buttons"><Button onClick={() => onAction({ act: 'retract', ...of })}>Retract</Button></div>;
  return (
    <div class="buttons">
      {entry.type === 'commitment' && <Button kind="main" onClick={() => onAction({ act: 'close', ...of })}>Close</Button>}
      <Button onClick={() => onAction({ act: 'confirm', ...of })}>Confirm</Button>
      <Button onClick={() => onAction({ act: 'remember', supersedes: entry })}>Supersede</Button>
      <Button onClick={() => onAction({ act: 'retract', ...of })}>Retract</Button>
    </div>
  );
}

function endedBy(entry: Entry): string {
  return { active: '', superseded: 'Superseded by', closed: 'Closed by', retracted: 'Retracted by' }[entry.standing];
}

export function EventPanel({ id, query, today, unconfirmed, mayWrite, lastAction, onAction }: EventPanelProps): JSX.Element {
  const story = useGet('/api/events/{id}', { path: { id } });
  const graph = useGet('/api/events/{id}/graph', { path: { id } });
  const why = useGet('/api/why', { query: { of: id } });
  const reload = (): void => {
    story.reload();
    graph.reload();
    why.reload();
  };
  useLive(['ledger'], reload);
  useEffect(() => {
    if (lastAction !== undefined) reload();
  }, [lastAction]);
  const heading = useRef<HTMLHeadingElement>(null);
  const loaded = story.value !== undefined;
  // Opening an event from the list moves the focus to it; loading its address does not.
  useEffect(() => {
    if (loaded && document.activeElement?.closest('.ledger')) heading.current?.focus({ preventScroll: true });
  }, [id, loaded]);
  return (
    <RequestView of={story} what="Loading the event">
      {({ entry, conflicts, stands_for: standsFor, place }) => (
        <>
          <header class="eventhead">
            <p class="meta"><PriorityTag priority={entry.priority} /><span>{label(typeLabel(entry))}</span><StateTag entry={entry} />{unconfirmed && <Tag kind="warm">unconfirmed</Tag>}<code>{entry.id}</code><CopyButton text={() => entry.id}>Copy ID</CopyButton></p>
            <h2 ref={heading} tabIndex={-1}>{entry.content}</h2>
            {entry.standing !== 'active' && entry.ended_by !== undefined && entry.ended_by !== entry.id && <p>{endedBy(entry)} <a href={href(['ledger', entry.ended_by], query)}>{entry.ended_by}</a>.</p>}
            {supersededIds(entry).length > 0 && <p class="dim">Supersedes {supersededIds(entry).map((one, at) => <span key={one}>{at > 0 && ', '}<a href={href(['ledger', one], query)}>{one}</a></span>)}.</p>}
            {unconfirmed && <p class="warm">Only a tool or a stranger said this. It does not count until you confirm it.</p>}
            {conflicts.map((one) => <p key={one.about} class="warm">Contradicts {one.events.filter((other) => other !== entry.id).map((other, at) => <span key={other}>{at > 0 && ', '}<a href={href(['ledger', other], query)}>{other}</a></span>)}. Supersede or retract one of them.</p>)}
          </header>
          {mayWrite ? <Actions entry={entry} unconfirmed={unconfirmed} onAction={onAction} /> : <p class="dim small">Your token is read-only. Log in with the full token to make changes.</p>}
          <Details entry={entry} today={today} />
          <section class="part" aria-label="Source">
            <h3>Source</h3>
            <RequestView of={why} what="Looking up the source">
              {(value) => 'source' in value ? (
                <ul class="sources">
                  {value.quote !== undefined && value.source.text?.includes(value.quote) !== true && <li><blockquote>{value.quote}</blockquote></li>}
                  <Source source={value.source} quote={value.quote} />
                </ul>
              ) : <p class="dim">No source found. It may have been forgotten.</p>}
            </RequestView>
            <p class="dim small">Stored in {place}</p>
          </section>
          {standsFor.length > 0 && <p class="dim small">Compacted from {standsFor.length} older lines, which are in the archive.</p>}
          <section class="part" aria-label="Related events">
            <h3>Related events</h3>
            {graph.value ? graph.value.nodes.length > 1 ? <Graph graph={graph.value} query={query} /> : <p class="dim">No other event confirms, closes, supersedes or retracts it, and it refers to none.</p> : graph.busy && <Loading what="Loading related events" />}
          </section>
        </>
      )}
    </RequestView>
  );
}
