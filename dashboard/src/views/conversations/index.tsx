// Conversations: the facts of each, turn by turn, and its artifacts; updated live while a chat runs.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { relativeDay, day, plural, moment, number } from '../../lib/format.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useKeys, useRows } from '../../lib/keyboard.ts';
import { liveConnected, useLive } from '../../lib/live.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { session } from '../../lib/session.ts';
import { useStore } from '../../lib/store.ts';
import { EmptyState, RequestView, Tag, TextField, classes, showToast } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import { Artifacts } from './artifacts.tsx';
import './conversations.css';
import { BaseTruth } from './base-truth.tsx';
import { Turns } from './turns.tsx';

type ConversationLine = Reply<'/api/conversations'>['conversations'][number];

const NO_CHORDS: ReadonlyMap<string, () => void> = new Map();

function ConversationList({ all, filter, current, today }: { all: readonly ConversationLine[]; filter: string; current: string | undefined; today: string | undefined }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const wanted = filter.trim().toLowerCase();
  const found = all.filter((one) => wanted === '' || one.conversation.toLowerCase().includes(wanted));
  return (
    <ul class="rows" ref={rows} aria-label="All conversations">
      {found.length === 0 && <li class="dim">No conversation name contains “{filter}”.</li>}
      {found.map((one) => (
        <li key={one.conversation}>
          <a class="row" data-row href={href(['conversations', one.conversation], { q: filter })} aria-current={one.conversation === current ? 'true' : undefined}>
            <span class="name">{one.conversation}{one.unsummarized > 0 && <Tag kind="warm" title="Turns that could not be summarized">{number(one.unsummarized)} not summarized</Tag>}</span>
            <span class="meta"><span>{one.turns > 0 ? `${plural(one.turns, 'turn')}, ${plural(one.facts, 'fact')}` : plural(one.messages, 'message')}</span><span class="when">{today === undefined ? day(one.last) : relativeDay(one.last, today)}</span></span>
          </a>
        </li>
      ))}
    </ul>
  );
}

/** Parses a number in the address. */
function parseNumber(text: string | null): number | undefined {
  return text !== null && /^\d{1,7}$/.test(text) ? Number(text) : undefined;
}

function ConversationView({ name, part, route, line, mayWrite }: { name: string; part: string; route: Route; line: ConversationLine | undefined; mayWrite: boolean }): JSX.Element {
  const whole = useGet('/api/conversations/{name}', { path: { name } });
  const live = useStore(liveConnected);
  useLive(['conversation', 'messages'], (changed) => { if (changed.name === null || changed.what !== 'conversation' || changed.name === name) whole.reload(); });
  const last = whole.value?.turns.at(-1)?.turn;
  const before = useRef(last);
  // A new turn is announced; the turns that were there when the conversation was opened are not.
  useEffect(() => {
    if (before.current !== undefined && last !== undefined && last > before.current) showToast(`Turn ${last} added`);
    before.current = last;
  }, [last]);
  const tab = (id: string, title: string): JSX.Element => <a href={href(['conversations', name, ...(id === '' ? [] : [id])])} aria-current={part === id ? 'page' : undefined}>{title}</a>;
  return (
    <>
      <header class="pagehead">
        <p class="back"><a class="button small" href={href(['conversations'], { q: route.query.get('q') ?? undefined })}>All conversations</a></p>
        <h2>{name}</h2>
        {whole.value && whole.value.turns.length > 0 && <nav class="parts" aria-label="Parts of the conversation">{tab('', 'Base truth')}{tab('turns', `Turns ${number(whole.value.turns.length)}`)}{tab('artifacts', `Artifacts ${number(new Set(whole.value.artifacts.map((one) => one.name)).size)}`)}</nav>}
        <span class={classes('live', live && 'on')} title={live ? 'Changes appear immediately' : 'No connection for live updates'}>{live ? 'live' : 'not live'}</span>
      </header>
      <RequestView of={whole} what="Loading the conversation">
        {(value) => value.turns.length === 0 && value.facts.length === 0
          ? (
            <EmptyState title="This conversation has messages only: it did not go through the server.">
              <p>Facts, turns and artifacts are recorded for chats that go through <code>icecore serve</code>: set your client's base URL to its address. {line && <>The last message is from <a href={href(['core', line.last.slice(0, 10)])}>{day(line.last)}</a>, the first one from <a href={href(['core', line.first.slice(0, 10)])}>{day(line.first)}</a>.</>}</p>
            </EmptyState>
          )
          : part === 'turns' ? <Turns whole={value} open={parseNumber(route.query.get('open'))} mayWrite={mayWrite} onDone={whole.reload} />
          : part === 'artifacts' ? <Artifacts whole={value} route={route} />
          : <BaseTruth whole={value} turn={parseNumber(route.query.get('turn'))} against={parseNumber(route.query.get('against'))} mayWrite={mayWrite} />}
      </RequestView>
    </>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const [name, part = ''] = route.rest;
  const list = useGet('/api/conversations', {});
  const status = useGet('/api/status', {});
  useLive(['conversation', 'messages'], list.reload);
  const mayWrite = useStore(session)?.right !== 'read';
  const today = status.value?.now.slice(0, 10);
  const filter = route.query.get('q') ?? '';
  useTitle(name === undefined ? 'Conversations' : `${name} · Conversations`);
  const single = useMemo(() => new Map([['Escape', () => {
    if (name === undefined) return;
    go(['conversations'], { q: filter });
    setTimeout(() => document.querySelector<HTMLElement>('.conversations [data-row]')?.focus());
  }]]), [name, filter]);
  useKeys(NO_CHORDS, single);
  const latest = list.value?.conversations[0];
  return (
    <>
      <div class="viewhead"><h1>Conversations</h1>{list.value && <span class="dim">{number(list.value.conversations.length)}{latest && `, the latest ${moment(latest.last)}`}</span>}</div>
      <RequestView of={list} what="Loading the conversations">
        {(value) => value.conversations.length === 0 && name === undefined
          ? <EmptyState title="There are no conversations yet."><p>Connect a chat client to <code>icecore serve</code> (use its address as the base URL), or chat in the terminal with <code>icecore chat</code>. Import the history of other programs with <code>icecore import</code>.</p></EmptyState>
          : (
            <div class={classes('conversations', name !== undefined && 'opened')}>
              <div class="index">
                <TextField label="Find a conversation" bare type="search" placeholder="Find a conversation" value={filter} onInput={(q) => go(['conversations', ...route.rest], { q }, true)} />
                <ConversationList all={value.conversations} filter={filter} current={name} today={today} />
              </div>
              {name !== undefined && <div class="shown"><ConversationView key={name} name={name} part={part} route={route} line={value.conversations.find((one) => one.conversation === name)} mayWrite={mayWrite} /></div>}
            </div>
          )}
      </RequestView>
    </>
  );
}

export const conversations: View = {
  id: 'conversations', title: 'Conversations', key: 'v', Page,
  icon: 'M4 5.500h11.500v8H9l-3 3v-3H4zM18 9h2v8h-2v2.500L15.500 17H11',
};
