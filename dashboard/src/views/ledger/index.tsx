// Ledger: every event with its state, with filters that are part of the address; an event opens beside the list.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { relativeDay, day, label, plural, number } from '../../lib/format.ts';
import { useDebounced, useTitle } from '../../lib/hooks.ts';
import { useKeys, useRows } from '../../lib/keyboard.ts';
import { useLive } from '../../lib/live.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { session } from '../../lib/session.ts';
import { useStore } from '../../lib/store.ts';
import { Button, Select, EmptyState, Field, RequestView, Tag, TextField, classes } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import { ActionDialog, UndoBar } from './actions.tsx';
import type { PendingAction, CompletedAction } from './actions.tsx';
import { EventPanel } from './event.tsx';
import './ledger.css';
import { Conflicts, Quarantine } from './quarantine.tsx';
import { EVENT_TYPES, PRIORITIES, STATUS_LABELS, StateTag, PriorityTag, countExtraFilters, typeLabel, parseFilters, filtersToQuery } from './filters.tsx';
import type { Entry, Filters, Status } from './filters.tsx';

const PAGE = 50;
const TYPING_MS = 250;
const NO_CHORDS: ReadonlyMap<string, () => void> = new Map();

type Facets = Reply<'/api/ledger'>['facets'];
type Change = (part: Partial<Filters>) => void;

/** A group of toggle buttons. */
function ToggleGroup<T extends string>({ title, all, chosen, counts, labelOf, onChange }: { title: string; all: readonly T[]; chosen: readonly T[]; counts: readonly { name: string; count: number }[] | undefined; labelOf: (one: T) => string; onChange: (chosen: T[]) => void }): JSX.Element {
  const id = useId();
  return (
    <div class="several" role="group" aria-labelledby={id}>
      <span id={id} class="title">{title}</span>
      {all.map((one) => {
        const count = counts?.find((other) => other.name === one)?.count;
        return (
          <Button key={one} small pressed={chosen.includes(one)} onClick={() => onChange(chosen.includes(one) ? chosen.filter((other) => other !== one) : [...chosen, one])}>
            {labelOf(one)}{count !== undefined && <span class="count">{number(count)}</span>}
          </Button>
        );
      })}
    </div>
  );
}

/** A text field with suggestions. With `gathers`, it is cleared after every value. */
function SuggestField({ title, value, options, onChange, clears = false }: { title: string; value: string; options: readonly string[]; onChange: (value: string) => void; clears?: boolean }): JSX.Element {
  const list = useId();
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const commit = (next: string): void => {
    if (next.trim() === value) return;
    onChange(next.trim());
    if (clears) setTyped('');
  };
  return (
    <Field label={title}>
      {(id) => (
        <>
          <input id={id} type="search" list={list} value={typed} autocomplete="off" spellcheck={false} placeholder="any"
            onInput={(event) => { const next = event.currentTarget.value; setTyped(next); if (next === '' || options.includes(next)) commit(next); }}
            onChange={(event) => commit(event.currentTarget.value)} />
          <datalist id={list}>{options.map((one) => <option key={one} value={one} />)}</datalist>
        </>
      )}
    </Field>
  );
}

function FilterForm({ filters, facets, onChange, onClear }: { filters: Filters; facets: Facets | undefined; onChange: Change; onClear: () => void }): JSX.Element {
  const more = countExtraFilters(filters);
  const [open, setOpen] = useState(false);
  const [text, setText] = useState(filters.text);
  const settled = useDebounced(text, TYPING_MS);
  const sent = useRef(filters.text);
  // Typing changes the address, and a changed address fills the field.
  useEffect(() => {
    if (settled === sent.current) return;
    sent.current = settled;
    onChange({ text: settled });
  }, [settled]);
  useEffect(() => {
    if (filters.text === sent.current) return;
    sent.current = filters.text;
    setText(filters.text);
  }, [filters.text]);
  const panel = useId();
  return (
    <form class={classes('finding', open && 'open')} role="search" aria-label="Filter the ledger" onSubmit={(event) => event.preventDefault()}>
      <div class="always">
        <TextField label="Text" bare type="search" placeholder="Filter by text" value={text} onInput={setText} />
        <Select label="Status" bare value={filters.status} options={STATUS_LABELS} onChange={(status) => onChange({ status: status as Status })} />
        <button type="button" class="button unfold" aria-expanded={open} aria-controls={panel} onClick={() => setOpen(!open)}>Filters{more > 0 && <Tag kind="ice">{more}</Tag>}</button>
      </div>
      <div class="more" id={panel}>
        <ToggleGroup title="Type" all={EVENT_TYPES} chosen={filters.type} counts={facets?.type} labelOf={label} onChange={(type) => onChange({ type })} />
        <ToggleGroup title="Priority" all={PRIORITIES} chosen={filters.priority} counts={facets?.priority} labelOf={(one) => one} onChange={(priority) => onChange({ priority })} />
        <div class="fields">
          <SuggestField title="Entity" value={filters.entity} options={facets?.entity.map((one) => one.name) ?? []} onChange={(entity) => onChange({ entity })} />
          <SuggestField title="Tag" clears value="" options={facets?.tag.map((one) => one.name).filter((one) => !filters.tag.includes(one)) ?? []} onChange={(tag) => { if (tag !== '') onChange({ tag: [...filters.tag.filter((one) => one !== tag), tag] }); }} />
          <TextField label="From" type="date" value={filters.since} onInput={(since) => onChange({ since })} />
          <TextField label="To" type="date" value={filters.until} onInput={(until) => onChange({ until })} />
        </div>
        {filters.tag.length > 0 && <p class="chosen">{filters.tag.map((tag) => <Button key={tag} small pressed label={`Remove the tag ${tag}`} onClick={() => onChange({ tag: filters.tag.filter((one) => one !== tag) })}>{tag} ✕</Button>)}</p>}
        <label class="check"><input type="checkbox" checked={filters.acts} onChange={(event) => onChange({ acts: event.currentTarget.checked })} /> Include closings, confirmations and retractions</label>
        {(more > 0 || filters.text !== '' || filters.status !== 'active') && <p><Button small onClick={onClear}>Clear all filters</Button></p>}
      </div>
    </form>
  );
}

function Row({ entry, filters, today, open, unconfirmed }: { entry: Entry; filters: Filters; today: string | undefined; open: boolean; unconfirmed: boolean }): JSX.Element {
  const late = entry.due !== undefined && entry.standing === 'active' && today !== undefined && entry.due.slice(0, 10) < today;
  return (
    <li>
      <a class={classes('row', entry.standing !== 'active' && 'over')} data-row data-event={entry.id} href={href(['ledger', entry.id], filtersToQuery(filters))} aria-current={open ? 'true' : undefined}>
        <span class="content">{entry.content}</span>
        <span class="meta">
          <PriorityTag priority={entry.priority} /><span>{label(typeLabel(entry))}</span><StateTag entry={entry} />
          {unconfirmed && <Tag kind="warm">unconfirmed</Tag>}
          {entry.due !== undefined && entry.standing === 'active' && <Tag kind={late ? 'warm' : 'plain'}>due {today === undefined ? day(entry.due) : relativeDay(entry.due, today)}</Tag>}
          {entry.waiting_on !== undefined && entry.standing === 'active' && <span>waiting on {entry.waiting_on}</span>}
          {entry.entity !== undefined && <span>{entry.entity}</span>}
          {(entry.tags ?? []).map((tag) => <span key={tag}>#{tag}</span>)}
          <span class="when">{day(entry.ts)}</span>
        </span>
      </a>
    </li>
  );
}

function Pager({ name, page, total, onPage }: { name: string; page: number; total: number; onPage: (page: number) => void }): JSX.Element {
  const pages = Math.max(Math.ceil(total / PAGE), 1);
  const first = Math.min((page - 1) * PAGE + 1, total);
  return (
    <nav class="pager" aria-label={name}>
      <p class="dim">{total <= PAGE ? plural(total, 'event') : `${number(first)} to ${number(Math.min(page * PAGE, total))} of ${plural(total, 'event')}`}</p>
      {pages > 1 && <><Button small disabled={page <= 1} onClick={() => onPage(page - 1)}>Newer</Button><Button small disabled={page >= pages} onClick={() => onPage(page + 1)}>Older</Button></>}
    </nav>
  );
}

function Tabs({ current, waiting }: { current: string; waiting: number | undefined }): JSX.Element {
  const tab = (id: string, to: string, children: ComponentChildren): JSX.Element => <a href={to} aria-current={current === id ? 'page' : undefined}>{children}</a>;
  return (
    <nav class="parts" aria-label="Parts of the ledger">
      {tab('list', href(['ledger']), 'Events')}
      {tab('waiting', href(['ledger', 'waiting']), <>Quarantine{waiting !== undefined && waiting > 0 && <Tag kind="warm">{number(waiting)}</Tag>}</>)}
      {tab('conflicts', href(['ledger', 'conflicts']), 'Conflicts')}
    </nav>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const [first] = route.rest;
  const part = first === 'waiting' || first === 'conflicts' ? first : 'list';
  const id = part === 'list' ? first : undefined;
  const filters = useMemo(() => parseFilters(route.query), [route.query.toString()]);
  const { page, ...rest } = filters;
  const list = useGet('/api/ledger', part === 'list' ? { query: { ...rest, offset: (page - 1) * PAGE, limit: PAGE } } : undefined);
  const quarantine = useGet('/api/quarantine', {});
  const status = useGet('/api/status', {});
  useLive(['ledger'], () => { list.reload(); quarantine.reload(); });
  const [pendingAction, setPendingAction] = useState<PendingAction>();
  const [completedAction, setCompletedAction] = useState<CompletedAction>();
  const rows = useRows<HTMLDivElement>();
  const today = status.value?.now.slice(0, 10);
  const mayWrite = useStore(session)?.right !== 'read';
  const waiting = useMemo(() => new Set(quarantine.value?.quarantined.map((one) => one.id)), [quarantine.value]);
  useTitle(id ?? { list: 'Ledger', waiting: 'Quarantine · Ledger', conflicts: 'Conflicts · Ledger' }[part]);

  const change: Change = (changed) => go(id === undefined ? ['ledger'] : ['ledger', id], filtersToQuery({ ...filters, page: 1, ...changed }), true);
  const close = (): void => {
    if (id === undefined) return;
    go(['ledger'], filtersToQuery(filters));
    // On narrow screens the list has to render first.
    setTimeout(() => document.querySelector<HTMLElement>(`[data-event="${CSS.escape(id)}"]`)?.focus());
  };
  const single = useMemo(() => new Map([['n', () => { if (mayWrite) setPendingAction({ act: 'remember' }); }], ['Escape', close]]), [id, filters, mayWrite]);
  useKeys(NO_CHORDS, single);
  const finished = (result: CompletedAction): void => {
    setPendingAction(undefined);
    setCompletedAction(result);
    list.reload();
    quarantine.reload();
  };
  const entities = list.value?.facets.entity.map((one) => one.name) ?? [];
  return (
    <>
      <div class="viewhead">
        <h1>Ledger</h1>
        <Tabs current={part} waiting={quarantine.value?.quarantined.length} />
        {mayWrite && <div class="aside"><Button kind="main" onClick={() => setPendingAction({ act: 'remember' })}>Remember something</Button></div>}
      </div>
      {completedAction && <UndoBar key={completedAction.by} done={completedAction} onDone={finished} onClose={() => setCompletedAction(undefined)} />}
      {pendingAction && <ActionDialog action={pendingAction} entities={entities} onDone={finished} onClose={() => setPendingAction(undefined)} />}
      {part === 'waiting' && <Quarantine of={quarantine} mayWrite={mayWrite} onAction={setPendingAction} />}
      {part === 'conflicts' && <Conflicts mayWrite={mayWrite} onAction={setPendingAction} />}
      {part === 'list' && (
        <div class={classes('ledger', id !== undefined && 'opened')} ref={rows}>
          <div class="browse">
            <FilterForm filters={filters} facets={list.value?.facets} onChange={change} onClear={() => change(parseFilters(new URLSearchParams()))} />
            <div class="list">
              <RequestView of={list} what="Loading the ledger">
                {(value) => value.total === 0 ? <NoEvents mayWrite={mayWrite} filtered={countExtraFilters(filters) > 0 || filters.text !== '' || filters.status !== 'active'} onClear={() => change(parseFilters(new URLSearchParams()))} /> : (
                  <>
                    <Pager name="Pages" page={page} total={value.total} onPage={(next) => change({ page: next })} />
                    <ul class="rows">{value.events.map((entry) => <Row key={entry.id} entry={entry} filters={filters} today={today} open={entry.id === id} unconfirmed={waiting.has(entry.id)} />)}</ul>
                    {value.total > PAGE && <Pager name="Pages, bottom" page={page} total={value.total} onPage={(next) => { change({ page: next }); scrollTo(0, 0); }} />}
                  </>
                )}
              </RequestView>
            </div>
          </div>
          {id !== undefined && (
            <aside class="event section" aria-label="The event">
              <p class="back"><Button small onClick={close}>Back to the list</Button></p>
              <EventPanel key={id} id={id} query={filtersToQuery(filters)} today={today} unconfirmed={waiting.has(id)} mayWrite={mayWrite} lastAction={completedAction?.by} onAction={setPendingAction} />
            </aside>
          )}
        </div>
      )}
    </>
  );
}

function NoEvents({ mayWrite, filtered, onClear }: { mayWrite: boolean; filtered: boolean; onClear: () => void }): JSX.Element {
  return filtered
    ? <EmptyState title="No events match the filters."><p>Remove a filter, or <button type="button" class="link" onClick={onClear}>clear all filters</button>.</p></EmptyState>
    : <EmptyState title="The ledger is empty."><p>{mayWrite ? 'Record the first statement with “Remember something”, or on the command line: ' : 'Record the first statement on the command line: '}<code>icecore remember "Never deploy on Fridays" --priority P0</code>. The nightly job (<code>icecore consolidate</code>) learns from conversations with your assistants.</p></EmptyState>;
}

export const ledger: View = {
  id: 'ledger', title: 'Ledger', key: 'l', Page,
  icon: 'M6 3.500h9.500L19 7v13.500H6zM15 3.500V7.500h4M9 11.500h7M9 14.500h7M9 17.500h4',
};
