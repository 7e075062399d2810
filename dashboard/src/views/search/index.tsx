// Search as you type over messages, events, summaries, pages and logs: with the score of each hit and its context.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { day, label, many, moment, number } from '../../lib/format.ts';
import { useSettled, useTitle } from '../../lib/hooks.ts';
import { useRows } from '../../lib/keys.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Messages } from '../../ui/messages.tsx';
import { Button, Choice, Empty, ErrorBox, Section, Shown, Tag, Text, classes } from '../../ui/parts.tsx';
import { Sources } from '../../ui/sources.tsx';
import type { View } from '../view.ts';
import './search.css';

const KINDS = ['message', 'event', 'summary', 'page', 'memory', 'log', 'state', 'artifact'] as const;
type Kind = (typeof KINDS)[number];
const NAMES: Record<Kind, string> = { message: 'Messages', event: 'Events', summary: 'Summaries', page: 'Pages', memory: 'Memories', log: 'Logs', state: 'Saved states', artifact: 'Artifacts' };
const TYPING_MS = 140;
const TIME_MS = 600;
const WHENS = [['', 'Any time'], ['today', 'Today'], ['yesterday', 'Yesterday'], ['last 7 days', 'Last 7 days'], ['last 30 days', 'Last 30 days'], ['last 90 days', 'Last 90 days'], ['this year', 'This year'], ['last year', 'Last year']] as const;
const MORE = 20;
const MOST = 200;
/** The most messages in the preview of a hit. */
const AROUND = 200;

interface Asked {
  q: string;
  kinds: Kind[];
  when: string;
  conversation: string;
  explain: boolean;
  words: boolean;
  context: boolean;
}

function read(route: Route): Asked {
  const kinds = route.query.getAll('kind').filter((kind): kind is Kind => (KINDS as readonly string[]).includes(kind));
  return {
    q: route.query.get('q') ?? '', kinds, when: route.query.get('when') ?? '', conversation: route.query.get('conversation') ?? '',
    explain: route.query.has('explain'), words: route.query.has('words'), context: route.query.has('context'),
  };
}

/** The text with the matched words highlighted. */
function Marked({ pieces }: { pieces: readonly string[] }): JSX.Element {
  return <>{pieces.map((piece, at) => (at % 2 === 1 ? <mark key={at}>{piece}</mark> : piece))}</>;
}

/** The address that shows a hit in its own view. */
function place(hit: Schema['Hit']): [where: string, label: string] | undefined {
  const date = hit.ts?.slice(0, 10);
  switch (hit.kind) {
    case 'event':
      return [href(['ledger', hit.id]), 'in the ledger'];
    case 'summary':
      return [href(['core', hit.id]), 'in the core'];
    case 'page':
      return [href(['knowledge', ...hit.source.replace(/^knowledge\//, '').replace(/\.md$/, '').split('/')]), 'on its page'];
    case 'artifact':
      return hit.conversation ? [href(['conversations', hit.conversation]), 'in its conversation'] : undefined;
    default:
      return date ? [href(['core', date], { message: hit.kind === 'message' ? hit.id : undefined }), 'in the core'] : undefined;
  }
}

function Why({ why }: { why: NonNullable<Schema['Hit']['why']> }): JSX.Element {
  const most = Math.max(...why.map((side) => Math.abs(side.adds)), 1e-6);
  return (
    <div class="sides" role="group" aria-label="Score">
      {why.map((side) => (
        <>
          <span>{side.what}</span>
          <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class={side.adds < 0 ? 'less' : ''} width={Math.max((Math.abs(side.adds) / most) * 100, 0.5)} height="8" /></svg>
          <span class="figures">{side.adds >= 0 ? '+' : '−'}{Math.abs(side.adds).toFixed(2)}</span>
        </>
      ))}
    </div>
  );
}

function HitRow({ hit, current, onZoom }: { hit: Schema['Hit']; current: boolean; onZoom: () => void }): JSX.Element {
  const where = place(hit);
  return (
    <li class={classes('hit', hit.replaced_by !== undefined && 'replaced')} data-row tabIndex={-1} aria-current={current ? 'true' : undefined}
      onClick={(event) => { if (!(event.target as Element).closest('a, button')) onZoom(); }} onKeyDown={(event) => { if (event.key === 'Enter' && event.target === event.currentTarget) onZoom(); }}>
      <div class="meta">
        <Tag kind="ice">{label(hit.kind)}</Tag>
        {hit.ts && <span>{moment(hit.ts)}</span>}
        {hit.conversation && <span>{hit.conversation}</span>}
        {hit.name && <span>{hit.name}</span>}
        {hit.unconfirmed && <Tag kind="warm" title="From a tool or a stranger, and not confirmed">unconfirmed</Tag>}
        {hit.replaced_by && <Tag title="A newer statement replaced it">superseded by {hit.replaced_by}</Tag>}
      </div>
      {hit.around && hit.around.length > 0 && <div class="around">{hit.around.map((one) => <p key={one.id}>{one.text.slice(0, 240)}</p>)}</div>}
      <p class="text"><Marked pieces={hit.marked ?? [hit.text]} /></p>
      <div class="meta">
        <button type="button" class="link" onClick={onZoom}>Preview</button>
        {where && <a href={where[0]}>{where[1]}</a>}
        {hit.also && hit.also.length > 0 && <span>also in {many(hit.also.length, 'other place')}</span>}
      </div>
      {hit.why && <Why why={hit.why} />}
    </li>
  );
}

/** The preview of a hit: the messages around it, or its text and sources. */
function Zoomed({ hit, onClose }: { hit: Schema['Hit']; onClose: () => void }): JSX.Element {
  const date = hit.ts?.slice(0, 10);
  const isSaid = hit.kind === 'message' || hit.kind === 'state';
  const said = useGet('/api/core/{period}/messages', isSaid && date ? { path: { period: date }, query: { ...(hit.conversation ? { conversation: hit.conversation } : {}), limit: AROUND } } : undefined);
  const why = useGet('/api/why', isSaid ? undefined : { query: { of: hit.kind === 'event' || hit.kind === 'summary' ? hit.id : hit.source } });
  return (
    <Section title={hit.ts ? day(hit.ts) : label(hit.kind)} aside={<Button small kind="quiet" label="Close" onClick={onClose}>✕</Button>}>
      {isSaid
        ? (
          <Shown of={said} what="Loading the messages">
            {(value) => <Messages messages={value.messages} wanted={hit.id} />}
          </Shown>
        )
        : (
          <>
            <p class="text">{hit.text}</p>
            <h3>Source</h3>
            {why.failure ? <p class="dim small">{why.failure.message}</p> : <Shown of={why}>{(value) => <Sources because={'because' in value ? value.because : [{ ...value, of: 'event' }]} />}</Shown>}
          </>
        )}
    </Section>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const asked = read(route);
  const [typed, setTyped] = useState(asked.q);
  const settled = useSettled(typed.trim(), TYPING_MS);
  const [time, setTime] = useState(asked.when);
  const settledTime = useSettled(time.trim(), TIME_MS);
  const [limit, setLimit] = useState(MORE);
  const [zoom, setZoom] = useState<string>();
  const rows = useRows<HTMLOListElement>();
  const field = useRef<HTMLInputElement>(null);
  useTitle(asked.q === '' ? 'Search' : `${asked.q} · Search`);

  const change = (part: Partial<Asked>): void => {
    const { kinds, ...rest } = { ...asked, ...part };
    go(['search'], { ...rest, kind: kinds }, true);
    setLimit(MORE);
  };
  useEffect(() => field.current?.focus(), []);
  useEffect(() => {
    if (settled !== asked.q) change({ q: settled });
  }, [settled]);
  // A link to a search puts its query into the field.
  useEffect(() => {
    if (asked.q !== settled) setTyped(asked.q);
  }, [asked.q]);

  useEffect(() => {
    if (settledTime !== asked.when) change({ when: settledTime });
  }, [settledTime]);
  useEffect(() => {
    if (asked.when !== settledTime) setTime(asked.when);
  }, [asked.when]);

  const query = {
    q: asked.q, limit, mark: true, ...(asked.kinds.length > 0 ? { kind: asked.kinds } : {}), ...(asked.when === '' ? {} : { when: asked.when }),
    ...(asked.conversation === '' ? {} : { conversation: asked.conversation }), ...(asked.explain ? { explain: true } : {}), ...(asked.words ? { words: true } : {}), ...(asked.context ? { context: 1 } : {}),
  };
  const found = useGet('/api/search', asked.q === '' ? undefined : { query });
  // While the next result is loading, the last one stays.
  const kept = useRef(found.value);
  if (found.value) kept.current = found.value;
  const shown = asked.q === '' ? undefined : found.value ?? kept.current;
  const zoomed = shown?.hits.find((hit) => hit.id === zoom);
  const conversations = useGet('/api/conversations', {});
  const toggle = (kind: Kind): void => change({ kinds: asked.kinds.includes(kind) ? asked.kinds.filter((one) => one !== kind) : [...asked.kinds, kind] });

  return (
    <>
      <div class="viewhead"><h1>Search</h1><p class="dim">Messages, events, summaries, pages and logs. “In quotes” for an exact phrase.</p></div>
      <form class="asking" role="search" onSubmit={(event) => { event.preventDefault(); change({ q: typed.trim() }); }}>
        <label class="unseen" for="search-words">Search query</label>
        <input id="search-words" ref={field} type="search" value={typed} placeholder="where is the spare key" autocomplete="off" spellcheck={false} maxLength={2_000}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'ArrowDown') {
              event.preventDefault();
              rows.current?.querySelector<HTMLElement>('[data-row]')?.focus();
            } else if (event.key === 'Escape' && typed !== '') {
              event.preventDefault();
              setTyped('');
            }
          }} />
        <div class="chips" role="group" aria-label="Kinds">
          {KINDS.map((kind) => <Button key={kind} small pressed={asked.kinds.includes(kind)} onClick={() => toggle(kind)}>{NAMES[kind]}</Button>)}
        </div>
        <div class="filters">
          <Choice label="When" value={WHENS.some(([value]) => value === asked.when) ? asked.when : ''} options={WHENS} onChange={(when) => change({ when })} />
          <Text label="Or a date or period" value={time} placeholder="feb 2026, last tuesday" onInput={setTime} />
          <Choice label="Conversation" value={asked.conversation} onChange={(conversation) => change({ conversation })}
            options={[['', 'All'], ...(conversations.value?.conversations ?? []).map((one) => [one.conversation, one.conversation] as const)]} />
          <div class="field"><span class="dim small">Show</span>
            <div class="chips">
              <Button small pressed={asked.explain} onClick={() => change({ explain: !asked.explain })}>Why</Button>
              <Button small pressed={asked.context} onClick={() => change({ context: !asked.context })}>Context</Button>
              <Button small pressed={asked.words} onClick={() => change({ words: !asked.words })}>Keywords only</Button>
            </div>
          </div>
        </div>
      </form>
      {found.failure && <ErrorBox failure={found.failure} again={found.again} />}
      {asked.q === '' && <Empty title="Type to search."><p>Results appear as you type. ↓ moves to the hits, Enter previews one, Esc clears the field.</p></Empty>}
      {shown && (
        <>
          <p class="dim small" role="status">{shown.hits.length === 0 ? 'No hits' : many(shown.hits.length, 'hit')}{shown.by === 'meaning' ? ', keyword and semantic search' : ', keyword search only'}{shown.unknown.length > 0 && `; not found anywhere: ${shown.unknown.map((word) => `“${word}”`).join(', ')}`}</p>
          {shown.hits.length === 0 && <Empty title="No results."><p>Try fewer or other words, remove filters, or read a whole period: <code>icecore zoom last tuesday</code>.</p></Empty>}
          <div class={classes('found', zoomed !== undefined && 'zooms')}>
            <ol class="hits" ref={rows} aria-label="Hits" aria-busy={found.busy}>
              {shown.hits.map((hit) => <HitRow key={hit.id} hit={hit} current={hit.id === zoom} onZoom={() => setZoom(hit.id === zoom ? undefined : hit.id)} />)}
            </ol>
            {zoomed && <div class="zoomed"><Zoomed key={zoomed.id} hit={zoomed} onClose={() => setZoom(undefined)} /></div>}
          </div>
          {shown.hits.length >= limit && limit < MOST && <p><Button busy={found.busy} onClick={() => setLimit(Math.min(limit + MORE, MOST))}>Show more than {number(limit)}</Button></p>}
        </>
      )}
    </>
  );
}

export const search: View = { id: 'search', title: 'Search', key: 's', icon: 'M10.500 4.500a6 6 0 1 0 0 12 6 6 0 0 0 0-12ZM15 15l5 5', Page };
