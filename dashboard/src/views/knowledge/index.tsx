// Knowledge: pages about people, projects and procedures; to read, to edit, and with their history.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { relativeDay, day, plural } from '../../lib/format.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useKeys, useRows } from '../../lib/keyboard.ts';
import { useLive } from '../../lib/live.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { session } from '../../lib/session.ts';
import { useStore } from '../../lib/store.ts';
import { Button, Select, Dialog, EmptyState, ErrorBox, Loading, RequestView, Tag, TextField, classes } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import { PageEditor, SavedBar, hasDraft } from './editor.tsx';
import type { Saved } from './editor.tsx';
import { History } from './history.tsx';
import './knowledge.css';
import { slug as slugOf } from './markers.ts';
import { FreshnessBar, PageReader } from './page.tsx';

type PageLine = Reply<'/api/pages'>['pages'][number];
type Kind = PageLine['kind'];

const KINDS: readonly (readonly [Kind, string, string])[] = [
  ['entities', 'People and things', 'A person, a project or a thing'], ['procedures', 'Procedures', 'How to do something'],
  ['principles', 'Principles', 'Rules that always apply'], ['insights', 'Insights', 'Conclusions'],
];
const NO_CHORDS: ReadonlyMap<string, () => void> = new Map();

function NewPageDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const [title, setTitle] = useState('');
  const [kind, setKind] = useState<Kind>('entities');
  const name = slugOf(title);
  const make = (): void => {
    if (name === '') return;
    onClose();
    go(['knowledge', kind, name, 'edit'], { title: title.trim() });
  };
  return (
    <Dialog title="A new page" open onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="main" disabled={name === ''} onClick={make}>Create page</Button></>}>
      <form class="remember" onSubmit={(event) => { event.preventDefault(); make(); }}>
        <TextField label="Title" value={title} onInput={setTitle} autofocus required hint={name === '' ? 'A short name' : `The file will be knowledge/${kind}/${name}.md`} />
        <Select label="Kind" value={kind} options={KINDS.map(([one, , says]) => [one, says] as const)} onChange={(next) => setKind(next as Kind)} />
      </form>
    </Dialog>
  );
}

function PageList({ pages, filter, current, today }: { pages: readonly PageLine[]; filter: string; current: string | undefined; today: string | undefined }): JSX.Element {
  const rows = useRows<HTMLDivElement>();
  const wanted = filter.trim().toLowerCase();
  const found = pages.filter((page) => wanted === '' || page.title.toLowerCase().includes(wanted) || page.slug.includes(wanted));
  return (
    <div ref={rows} class="pages">
      {found.length === 0 && <p class="dim">No page name contains “{filter}”.</p>}
      {KINDS.map(([kind, title]) => {
        const of = found.filter((page) => page.kind === kind);
        return of.length === 0 ? null : (
          <section key={kind} aria-label={title}>
            <h2>{title} <span class="dim">{of.length}</span></h2>
            <ul class="rows">
              {of.map((page) => (
                <li key={page.path}>
                  <a class="row" data-row href={href(['knowledge', page.kind, page.slug], { q: filter })} aria-current={page.path === current ? 'true' : undefined}>
                    <span class="name">{page.title}{page.edited && <Tag kind="ice" title="The file was edited; the next nightly job imports the changes into the ledger">edited</Tag>}{hasDraft(page.path) && <Tag kind="warm">not saved</Tag>}</span>
                    <FreshnessBar fresh={page.fresh} stale={page.stale} dropped={page.dropped} words={false} />
                    <span class="meta">{page.statements === 0 ? 'no active statements' : plural(page.statements, 'statement')}{page.stale > 0 && <span class="warm">{page.stale} stale</span>}{page.dropped > 0 && <span>{page.dropped} dropped</span>}{page.verified !== null && <span class="when">{today === undefined ? day(page.verified) : relativeDay(page.verified, today)}</span>}</span>
                  </a>
                </li>
              ))}
            </ul>
          </section>
        );
      })}
    </div>
  );
}

function PageShell({ kind, slug, part, route, today, mayWrite }: { kind: string; slug: string; part: string; route: Route; today: string | undefined; mayWrite: boolean }): JSX.Element {
  const page = useGet('/api/pages/{kind}/{slug}', { path: { kind, slug } });
  const [saved, setSaved] = useState<Saved>();
  useLive(['knowledge', 'ledger'], page.reload);
  const missing = page.failure?.status === 404;
  const title = page.value?.title ?? route.query.get('title') ?? slug.replaceAll('-', ' ');
  const tab = (id: string, title: string): JSX.Element => <a href={href(['knowledge', kind, slug, ...(id === '' ? [] : [id])])} aria-current={part === id ? 'page' : undefined}>{title}</a>;
  return (
    <>
      <header class="pagehead">
        <p class="back"><a class="button small" href={href(['knowledge'], { q: route.query.get('q') ?? undefined })}>All pages</a></p>
        <h2>{title}</h2>
        {page.value?.edited && <Tag kind="ice" title="The file was edited; the next nightly job imports the changes into the ledger">edited</Tag>}
        {(!missing || part === 'edit') && <nav class="parts" aria-label="Parts of the page">{tab('', 'Read')}{mayWrite && tab('edit', hasDraft(`knowledge/${kind}/${slug}.md`) ? 'Edit (not saved)' : 'Edit')}{tab('history', 'History')}</nav>}
      </header>
      {saved && part !== 'edit' && <SavedBar saved={saved} onClose={() => setSaved(undefined)} />}
      {part === 'history' ? <History kind={kind} slug={slug} changedAt={page.value?.changed_at} route={route} mayWrite={mayWrite} />
        : part === 'edit' && mayWrite && (page.value || missing)
          ? <PageEditor key={`${kind}/${slug}`} kind={kind} slug={slug} title={title} page={page.value} onChanged={page.reload} onSaved={(what) => { setSaved(what); page.reload(); go(['knowledge', kind, slug]); }} />
          : page.value ? <PageReader page={page.value} today={today} />
          : missing ? <EmptyState title="There is no such page."><p>It was forgotten, or it never existed. {mayWrite && <a href={href(['knowledge', kind, slug, 'edit'])}>Create it</a>}</p></EmptyState>
          : page.failure ? <ErrorBox failure={page.failure} again={page.reload} /> : <Loading what="Loading the page" />}
    </>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const [kind, slug, part = ''] = route.rest;
  const pages = useGet('/api/pages', {});
  const status = useGet('/api/status', {});
  useLive(['knowledge', 'ledger'], pages.reload);
  const [asking, setAsking] = useState(false);
  const mayWrite = useStore(session)?.right !== 'read';
  const today = status.value?.now.slice(0, 10);
  const open = kind !== undefined && slug !== undefined;
  const shown = pages.value?.pages.find((page) => page.kind === kind && page.slug === slug);
  useTitle(open ? `${shown?.title ?? slug} · Knowledge` : 'Knowledge');
  const filter = route.query.get('q') ?? '';
  const single = useMemo(() => new Map([['n', () => { if (mayWrite) setAsking(true); }], ['Escape', () => {
    if (!open || part === 'edit') return;
    go(['knowledge'], { q: filter });
    setTimeout(() => document.querySelector<HTMLElement>('.pages [data-row]')?.focus());
  }]]), [mayWrite, open, part, filter]);
  useKeys(NO_CHORDS, single);
  return (
    <>
      <div class="viewhead"><h1>Knowledge</h1>{pages.value && <span class="dim">{plural(pages.value.pages.length, 'page')}</span>}{mayWrite && <div class="aside"><Button onClick={() => setAsking(true)}>New page</Button></div>}</div>
      {asking && <NewPageDialog onClose={() => setAsking(false)} />}
      <RequestView of={pages} what="Loading the pages">
        {(value) => value.pages.length === 0 && !open
          ? <EmptyState title="There are no pages yet."><p>Pages are built from statements with an entity: record some (<code>icecore remember "…" --entity apollo</code>) and run the nightly job (<code>icecore consolidate</code>), or write the first page yourself.</p></EmptyState>
          : (
            <div class={classes('knowledge', open && 'opened', part === 'edit' && 'wide')}>
              <div class="index">
                <TextField label="Find a page" bare type="search" placeholder="Find a page" value={filter} onInput={(q) => go(['knowledge', ...route.rest], { q }, true)} />
                <PageList pages={value.pages} filter={filter} current={open ? `knowledge/${kind}/${slug}.md` : undefined} today={today} />
              </div>
              {open && <div class="shown"><PageShell key={`${kind}/${slug}`} kind={kind} slug={slug} part={part} route={route} today={today} mayWrite={mayWrite} /></div>}
            </div>
          )}
      </RequestView>
    </>
  );
}

export const knowledge: View = {
  id: 'knowledge', title: 'Knowledge', key: 'k', Page,
  icon: 'M12 6.500c-2-1.700-4.500-2-8-2v13.500c3.500 0 6 .3 8 2 2-1.700 4.500-2 8-2V4.500c-3.500 0-6 .3-8 2zM12 6.500V20',
};
