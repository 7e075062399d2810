// Search as you type over messages, events, summaries, pages and logs: with the score of each hit and its context.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { day, label, plural, moment, number } from '../../lib/format.ts';
import { useDebounced, useTitle } from '../../lib/hooks.ts';
import { useRows } from '../../lib/keyboard.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Messages } from '../../ui/messages.tsx';
import { Button, Select, EmptyState, ErrorBox, Section, RequestView, Tag, TextField, classes } from '../../ui/components.tsx';
import { Sources } from '../../ui/sources.tsx';
import type { View } from '../view.ts';
import './search.css';

const KINDS = ['message', 'event', 'summary', 'page', 'memory', 'log', 'state', 'artifact'] as const;
type Kind = (typeof KINDS)[number];
const KIND_LABELS: Record<Kind, string> = { message: 'Messages', event: 'Events', summary: 'Summaries', page: 'Pages', memory: 'Memories', log: 'Logs', state: 'Saved states', artifact: 'Artifacts' };
const TYPING_MS = 140;
const TIME_TYPING_MS = 600;
const PERIODS = [['', 'Any time'], ['today', 'Today'], ['yesterday', 'Yesterday'], ['last 7 days', 'Last 7 days'], ['last 30 days', 'Last 30 days'], ['last 90 days', 'Last 90 days'], ['this year', 'This year'], ['last year', 'Last year']] as const;
const PAGE = 20;
const MAX_HITS = 200;
/** The most messages in the preview of a hit. */
const MAX_CONTEXT = 200;

interface SearchQuery {
  q: string;
  kinds: Kind[];
  when: string;
  conversation: string;
  explain: boolean;
  words: boolean;
  context: boolean;
}

function parseSearchQuery(route: Route): SearchQuery {
  const kinds = route.query.getAll('kind').filter((kind): kind is Kind => (KINDS as readonly string[]).includes(kind));
  return {
    q: route.query.get('q') ?? '', kinds, when: route.query.get('when') ?? '', conversation: route.query.get('conversation') ?? '',
    explain: route.query.has('explain'), words: route.query.has('words'), context: route.query.has('context'),
  };
}

/** The text with the matched words highlighted. */
function Highlighted({ pieces }: { pieces: readonly string[] }): JSX.Element {
  return <>{pieces.map((piece, at) => (at % 2 === 1 ? <mark key={at}>{piece}</mark> : piece))}</>;
}

/** The address that shows a hit in its own view. */
function viewOf(hit: Schema['Hit']): [where: string, label: string] | undefined {
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

function ScoreBars({ why }: { why: NonNullable<Schema['Hit']['why']> }): JSX.Element {
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

function HitRow({ hit, current, onPreview }: { hit: Schema['Hit']; current: boolean; onPreview: () => void }): JSX.Element {
  const where = viewOf(hit);
  return (
    <li class={classes('hit', hit.replaced_by !== undefined && 'replaced')} data-row tabIndex={-1} aria-current={current ? 'true' : undefined}
      onClick={(event) => { if (!(event.target as Element).closest('a, button')) onPreview(); }} onKeyDown={(event) => { if (event.key === 'Enter' && event.target === event.currentTarget) onPreview(); }}>
      <div class="meta">
        <Tag kind="ice">{label(hit.kind)}</Tag>
        {hit.ts && <span>{moment(hit.ts)}</span>}
        {hit.conversation && <span>{hit.conversation}</span>}
        {hit.name && <span>{hit.name}</span>}
        {hit.unconfirmed && <Tag kind="warm" title="From a tool or a stranger, and not confirmed">unconfirmed</Tag>}
        {hit.replaced_by && <Tag title="A newer statement replaced it">superseded by {hit.replaced_by}</Tag>}
      </div>
      {hit.around && hit.around.length > 0 && <div class="around">{hit.around.map((one) => <p key={one.id}>{one.text.slice(0, 240)}</p>)}</div>}
      <p class="text"><Highlighted pieces={hit.marked ?? [hit.text]} /></p>
      <div class="meta">
        <button type="button" class="link" onClick={onPreview}>Preview</button>
        {where && <a href={where[0]}>{where[1]}</a>}
        {hit.also && hit.also.length > 0 && <span>also in {plural(hit.also.length, 'other place')}</span>}
      </div>
      {hit.why && <ScoreBars why={hit.why} />}
    </li>
  );
}

/** The preview of a hit: the messages around it, or its text and sources. */
function Preview({ hit, onClose }: { hit: Schema['Hit']; onClose: () => void }): JSX.Element {
  const date = hit.ts?.slice(0, 10);
  const isMessage = hit.kind === 'message' || hit.kind === 'state';
  const messages = useGet('/api/core/{period}/messages', isMessage && date ? { path: { period: date }, query: { ...(hit.conversation ? { conversation: hit.conversation } : {}), limit: MAX_CONTEXT } } : undefined);
  const why = useGet('/api/why', isMessage ? undefined : { query: { of: hit.kind === 'event' || hit.kind === 'summary' ? hit.id : hit.source } });
  return (
    <Section title={hit.ts ? day(hit.ts) : label(hit.kind)} aside={<Button small kind="quiet" label="Close" onClick={onClose}>✕</Button>}>
      {isMessage
        ? (
          <RequestView of={messages} what="Loading the messages">
            {(value) => <Messages messages={value.messages} highlighted={hit.id} />}
          </RequestView>
        )
        : (
          <>
            <p class="text">{hit.text}</p>
            <h3>Source</h3>
            {why.failure ? <p class="dim small">{why.failure.message}</p> : <RequestView of={why}>{(value) => <Sources because={'because' in value ? value.because : [{ ...value, of: 'event' }]} />}</RequestView>}
          </>
        )}
    </Section>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const searchQuery = parseSearchQuery(route);
  const [typed, setTyped] = useState(searchQuery.q);
  const settled = useDebounced(typed.trim(), TYPING_MS);
  const [time, setTime] = useState(searchQuery.when);
  const settledTime = useDebounced(time.trim(), TIME_TYPING_MS);
  const [limit, setLimit] = useState(PAGE);
  const [previewId, setPreviewId] = useState<string>();
  const rows = useRows<HTMLOListElement>();
  const field = useRef<HTMLInputElement>(null);
  useTitle(searchQuery.q === '' ? 'Search' : `${searchQuery.q} · Search`);

  const change = (part: Partial<SearchQuery>): void => {
    const { kinds, ...rest } = { ...searchQuery, ...part };
    go(['search'], { ...rest, kind: kinds }, true);
    setLimit(PAGE);
  };
  useEffect(() => field.current?.focus(), []);
  useEffect(() => {
    if (settled !== searchQuery.q) change({ q: settled });
  }, [settled]);
  // A link to a search puts its query into the field.
  useEffect(() => {
    if (searchQuery.q !== settled) setTyped(searchQuery.q);
  }, [searchQuery.q]);

  useEffect(() => {
    if (settledTime !== searchQuery.when) change({ when: settledTime });
  }, [settledTime]);
  useEffect(() => {
    if (searchQuery.when !== settledTime) setTime(searchQuery.when);
  }, [searchQuery.when]);

  const query = {
    q: searchQuery.q, limit, mark: true, ...(searchQuery.kinds.length > 0 ? { kind: searchQuery.kinds } : {}), ...(searchQuery.when === '' ? {} : { when: searchQuery.when }),
    ...(searchQuery.conversation === '' ? {} : { conversation: searchQuery.conversation }), ...(searchQuery.explain ? { explain: true } : {}), ...(searchQuery.words ? { words: true } : {}), ...(searchQuery.context ? { context: 1 } : {}),
  };
  const found = useGet('/api/search', searchQuery.q === '' ? undefined : { query });
  // While the next result is loading, the last one stays.
  const lastFound = useRef(found.value);
  if (found.value) lastFound.current = found.value;
  const shown = searchQuery.q === '' ? undefined : found.value ?? lastFound.current;
  const previewed = shown?.hits.find((hit) => hit.id === previewId);
  const conversations = useGet('/api/conversations', {});
  const toggle = (kind: Kind): void => change({ kinds: searchQuery.kinds.includes(kind) ? searchQuery.kinds.filter((one) => one !== kind) : [...searchQuery.kinds, kind] });

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
          {KINDS.map((kind) => <Button key={kind} small pressed={searchQuery.kinds.includes(kind)} onClick={() => toggle(kind)}>{KIND_LABELS[kind]}</Button>)}
        </div>
        <div class="filters">
          <Select label="When" value={PERIODS.some(([value]) => value === searchQuery.when) ? searchQuery.when : ''} options={PERIODS} onChange={(when) => change({ when })} />
          <TextField label="Or a date or period" value={time} placeholder="feb 2026, last tuesday" onInput={setTime} />
          <Select label="Conversation" value={searchQuery.conversation} onChange={(conversation) => change({ conversation })}
            options={[['', 'All'], ...(conversations.value?.conversations ?? []).map((one) => [one.conversation, one.conversation] as const)]} />
          <div class="field"><span class="dim small">Show</span>
            <div class="chips">
              <Button small pressed={searchQuery.explain} onClick={() => change({ explain: !searchQuery.explain })}>Why</Button>
              <Button small pressed={searchQuery.context} onClick={() => change({ context: !searchQuery.context })}>Context</Button>
              <Button small pressed={searchQuery.words} onClick={() => change({ words: !searchQuery.words })}>Keywords only</Button>
            </div>
          </div>
        </div>
      </form>
      {found.failure && <ErrorBox failure={found.failure} again={found.reload} />}
      {searchQuery.q === '' && <EmptyState title="Type to search."><p>Results appear as you type. ↓ moves to the hits, Enter previews one, Esc clears the field.</p></EmptyState>}
      {shown && (
        <>
          <p class="dim small" role="status">{shown.hits.length === 0 ? 'No hits' : plural(shown.hits.length, 'hit')}{shown.by === 'meaning' ? ', keyword and semantic search' : ', keyword search only'}{shown.unknown.length > 0 && `; not found anywhere: ${shown.unknown.map((word) => `“${word}”`).join(', ')}`}</p>
          {shown.hits.length === 0 && <EmptyState title="No results."><p>Try fewer or other words, remove filters, or read a whole period: <code>icecore zoom last tuesday</code>.</p></EmptyState>}
          <div class={classes('found', previewed !== undefined && 'zooms')}>
            <ol class="hits" ref={rows} aria-label="Hits" aria-busy={found.busy}>
              {shown.hits.map((hit) => <HitRow key={hit.id} hit={hit} current={hit.id === previewId} onPreview={() => setPreviewId(hit.id === previewId ? undefined : hit.id)} />)}
            </ol>
            {previewed && <div class="zoomed"><Preview key={previewed.id} hit={previewed} onClose={() => setPreviewId(undefined)} /></div>}
          </div>
          {shown.hits.length >= limit && limit < MAX_HITS && <p><Button busy={found.busy} onClick={() => setLimit(Math.min(limit + PAGE, MAX_HITS))}>Show more than {number(limit)}</Button></p>}
        </>
      )}
    </>
  );
}

export const search: View = { id: 'search', title: 'Search', key: 's', icon: 'M10.500 4.500a6 6 0 1 0 0 12 6 6 0 0 0 0-12ZM15 15l5 5', Page };
