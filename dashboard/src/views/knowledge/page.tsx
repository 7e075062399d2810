// A page to read: its text, with a small link to the source after each statement.
import type { ComponentChildren, JSX } from 'preact';
import { useCallback, useMemo } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { relativeDay, bytes, day, plural, moment } from '../../lib/format.ts';
import { useRows } from '../../lib/keyboard.ts';
import { href } from '../../lib/route.ts';
import { Markdown } from '../../ui/markdown.tsx';
import { CopyButton, Section, Tag } from '../../ui/components.tsx';
import { extractMarkers } from './markers.ts';
import type { Freshness } from './markers.ts';

type Page = Reply<'/api/pages/{kind}/{slug}'>;

const FRESHNESS_TITLES: Record<Freshness, string> = {
  fresh: 'stated or confirmed recently, or of a type that does not age',
  stale: 'not confirmed for some time: assistants get it with a warning',
  dropped: 'not confirmed for a long time: assistants get it only where it is relevant',
};

/** How fresh the statements of a page are, as a bar and as text. */
export function FreshnessBar({ fresh, stale, dropped, words = true }: { fresh: number; stale: number; dropped: number; words?: boolean }): JSX.Element | null {
  const all = fresh + stale + dropped;
  if (all === 0) return words ? <span class="dim">no active statements</span> : null;
  const summary = [`${fresh} fresh`, stale > 0 && `${stale} stale`, dropped > 0 && `${dropped} dropped`].filter(Boolean).join(', ');
  return (
    <span class="fresh">
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" {...(words ? { 'aria-hidden': 'true' as const } : { role: 'img' as const, 'aria-label': summary })}>
        <rect class="f" width={(fresh / all) * 100} height="6" /><rect class="s" x={(fresh / all) * 100} width={(stale / all) * 100} height="6" /><rect class="d" x={((fresh + stale) / all) * 100} width={(dropped / all) * 100} height="6" />
      </svg>
      {words && <span>{summary}</span>}
    </span>
  );
}

/** A page's Markdown with its source markers as links. `standing` returns the freshness of an event. */
export function PageText({ text, freshnessOf }: { text: string; freshnessOf: (event: string) => Freshness | undefined }): JSX.Element {
  const { text: plain, markers } = useMemo(() => extractMarkers(text), [text]);
  const beside = useCallback((line: number): ComponentChildren => {
    const marker = markers.get(line);
    if (!marker) return undefined;
    const worst = marker.events.map(freshnessOf).find((one) => one === 'dropped' || one === 'stale');
    return (
      <span class="sourcemarks">
        {marker.events.map((id) => {
          const when = marker.events.length === 1 && marker.verified !== undefined ? marker.verified : id.replace(/^EVT-(\d{4})(\d{2})(\d{2}).*/, '$1-$2-$3');
          const title = [`From ${id}`, marker.source !== undefined && `source: ${marker.source}`, marker.verified !== undefined && `last confirmed ${day(marker.verified)}`].filter(Boolean).join(', ');
          return <a key={id} class="source" href={href(['ledger', id], { status: 'any' })} title={title}><span class="unseen">{id}, </span>{day(when)}</a>;
        })}
        {worst && <Tag kind={worst === 'stale' ? 'warm' : 'plain'} title={FRESHNESS_TITLES[worst]}>{worst}</Tag>}
      </span>
    );
  }, [markers, freshnessOf]);
  return <Markdown text={plain} beside={beside} />;
}

export function PageReader({ page, today }: { page: Page; today: string | undefined }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const known = useMemo(() => new Map(page.events.map((event) => [event.id, event.standing === 'active' ? event.freshness : undefined])), [page]);
  const freshnessOf = useCallback((event: string) => known.get(event), [known]);
  const old = page.events.filter((event) => known.get(event.id) === 'stale' || known.get(event.id) === 'dropped');
  return (
    <div class="reading">
      <article class="section" aria-label={page.title}><PageText text={page.text} freshnessOf={freshnessOf} /></article>
      <div class="besides">
        <Section title="Freshness">
          <p><FreshnessBar fresh={page.fresh} stale={page.stale} dropped={page.dropped} /></p>
          <dl class="marks">
            <div><dt>Last confirmed</dt><dd>{page.verified === null ? 'never' : today === undefined ? day(page.verified) : `${day(page.verified)}, ${relativeDay(page.verified, today)}`}</dd></div>
            <div><dt>Changed</dt><dd>{moment(page.changed_at)}</dd></div>
            <div><dt>File</dt><dd class="file"><code>{page.path}</code>, {bytes(page.bytes)}</dd></div>
          </dl>
          <p><CopyButton text={() => page.text}>Copy page</CopyButton></p>
        </Section>
        {old.length > 0 && (
          <Section title="To confirm" aside={plural(old.length, 'statement')}>
            <p class="dim small">Not confirmed for a while. Open a statement to confirm or supersede it.</p>
            <ul class="rows" ref={rows}>
              {old.map((event) => <li key={event.id}><a class="row" data-row href={href(['ledger', event.id])}>{event.content}<span class="meta"><Tag kind={known.get(event.id) === 'stale' ? 'warm' : 'plain'} title={FRESHNESS_TITLES[known.get(event.id) ?? 'stale']}>{known.get(event.id)}</Tag>last confirmed {day(event.verified)}</span></a></li>)}
            </ul>
          </Section>
        )}
      </div>
    </div>
  );
}
