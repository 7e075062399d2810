// A page to read: its text, with a small link to the source after each statement.
import type { ComponentChildren, JSX } from 'preact';
import { useCallback, useMemo } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { ago, bytes, day, many, moment } from '../../lib/format.ts';
import { useRows } from '../../lib/keys.ts';
import { href } from '../../lib/route.ts';
import { Markdown } from '../../ui/markdown.tsx';
import { Copy, Section, Tag } from '../../ui/parts.tsx';
import { read } from './marks.ts';
import type { Freshness } from './marks.ts';

type Page = Reply<'/api/pages/{kind}/{slug}'>;

const SAYS: Record<Freshness, string> = {
  fresh: 'stated or confirmed recently, or of a type that does not age',
  stale: 'not confirmed for some time: assistants get it with a warning',
  dropped: 'not confirmed for a long time: assistants get it only where it is relevant',
};

/** How fresh the statements of a page are, as a bar and as text. */
export function Fresh({ fresh, stale, dropped, words = true }: { fresh: number; stale: number; dropped: number; words?: boolean }): JSX.Element | null {
  const all = fresh + stale + dropped;
  if (all === 0) return words ? <span class="dim">no active statements</span> : null;
  const told = [`${fresh} fresh`, stale > 0 && `${stale} stale`, dropped > 0 && `${dropped} dropped`].filter(Boolean).join(', ');
  return (
    <span class="fresh">
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" {...(words ? { 'aria-hidden': 'true' as const } : { role: 'img' as const, 'aria-label': told })}>
        <rect class="f" width={(fresh / all) * 100} height="6" /><rect class="s" x={(fresh / all) * 100} width={(stale / all) * 100} height="6" /><rect class="d" x={((fresh + stale) / all) * 100} width={(dropped / all) * 100} height="6" />
      </svg>
      {words && <span>{told}</span>}
    </span>
  );
}

/** A page's Markdown with its source markers as links. `standing` returns the freshness of an event. */
export function Text({ text, standing }: { text: string; standing: (event: string) => Freshness | undefined }): JSX.Element {
  const { text: plain, marks } = useMemo(() => read(text), [text]);
  const beside = useCallback((line: number): ComponentChildren => {
    const mark = marks.get(line);
    if (!mark) return undefined;
    const worst = mark.events.map(standing).find((one) => one === 'dropped' || one === 'stale');
    return (
      <span class="sourcemarks">
        {mark.events.map((id) => {
          const when = mark.events.length === 1 && mark.verified !== undefined ? mark.verified : id.replace(/^EVT-(\d{4})(\d{2})(\d{2}).*/, '$1-$2-$3');
          const title = [`From ${id}`, mark.source !== undefined && `source: ${mark.source}`, mark.verified !== undefined && `last confirmed ${day(mark.verified)}`].filter(Boolean).join(', ');
          return <a key={id} class="source" href={href(['ledger', id], { status: 'any' })} title={title}><span class="unseen">{id}, </span>{day(when)}</a>;
        })}
        {worst && <Tag kind={worst === 'stale' ? 'warm' : 'plain'} title={SAYS[worst]}>{worst}</Tag>}
      </span>
    );
  }, [marks, standing]);
  return <Markdown text={plain} beside={beside} />;
}

export function Reading({ page, today }: { page: Page; today: string | undefined }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const known = useMemo(() => new Map(page.events.map((event) => [event.id, event.standing === 'active' ? event.freshness : undefined])), [page]);
  const standing = useCallback((event: string) => known.get(event), [known]);
  const old = page.events.filter((event) => known.get(event.id) === 'stale' || known.get(event.id) === 'dropped');
  return (
    <div class="reading">
      <article class="section" aria-label={page.title}><Text text={page.text} standing={standing} /></article>
      <div class="besides">
        <Section title="Freshness">
          <p><Fresh fresh={page.fresh} stale={page.stale} dropped={page.dropped} /></p>
          <dl class="marks">
            <div><dt>Last confirmed</dt><dd>{page.verified === null ? 'never' : today === undefined ? day(page.verified) : `${day(page.verified)}, ${ago(page.verified, today)}`}</dd></div>
            <div><dt>Changed</dt><dd>{moment(page.changed_at)}</dd></div>
            <div><dt>File</dt><dd class="file"><code>{page.path}</code>, {bytes(page.bytes)}</dd></div>
          </dl>
          <p><Copy text={() => page.text}>Copy page</Copy></p>
        </Section>
        {old.length > 0 && (
          <Section title="To confirm" aside={many(old.length, 'statement')}>
            <p class="dim small">Not confirmed for a while. Open a statement to confirm or supersede it.</p>
            <ul class="rows" ref={rows}>
              {old.map((event) => <li key={event.id}><a class="row" data-row href={href(['ledger', event.id])}>{event.content}<span class="meta"><Tag kind={known.get(event.id) === 'stale' ? 'warm' : 'plain'} title={SAYS[known.get(event.id) ?? 'stale']}>{known.get(event.id)}</Tag>last confirmed {day(event.verified)}</span></a></li>)}
            </ul>
          </Section>
        )}
      </div>
    </div>
  );
}
