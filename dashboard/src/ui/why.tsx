// Where something comes from: the way down from a line to the words that were said.
import type { JSX } from 'preact';
import type { Schema } from '../lib/api.ts';
import { useGet } from '../lib/api.ts';
import { moment, period } from '../lib/format.ts';
import { href } from '../lib/route.ts';
import { ErrorBox, Loading, classes } from './parts.tsx';

type Source = Schema['TrailSource'];
type Because = Schema['Because']['because'][number];

function Words({ source }: { source: Source }): JSX.Element {
  switch (source.kind) {
    case 'record':
      return (
        <li>
          <blockquote>{source.text}</blockquote>
          <p class="meta">
            <span>{source.speaker ?? 'somebody'}{source.ts !== undefined && `, ${moment(source.ts)}`}{source.conversation !== undefined && `, in ${source.conversation}`}</span>
            {source.ts !== undefined && <a href={href(['core', source.ts.slice(0, 10)], { message: source.id })}>in the core</a>}
          </p>
        </li>
      );
    case 'file':
      return (
        <li>
          <blockquote>{(source.context ?? []).map(([line, text]) => <span key={line} class={classes('line', line === source.line && 'said')}>{text}{'\n'}</span>)}</blockquote>
          <p class="meta">{source.path}{source.line != null && `, line ${source.line}`}</p>
        </li>
      );
    case 'gone':
      return <li class="dim">It was in {source.path}, which is not there any more.</li>;
    case 'elsewhere':
      return <li class="dim">It was learnt elsewhere: {source.name}.</li>;
    case 'live':
      return <li class="dim">It was told directly, on the command line or by an assistant.</li>;
  }
}

function Reason({ one }: { one: Because }): JSX.Element {
  switch (one.of) {
    case 'event':
      return (
        <li>
          <p><a class="mono" href={href(['ledger', one.entry.id])}>{one.entry.id}</a> {one.entry.content}</p>
          <p class="meta">{one.entry.type}, {one.entry.priority}, {moment(one.entry.ts)}, {one.place}</p>
          <ul><Words source={one.source} /></ul>
        </li>
      );
    case 'summary':
      return (
        <li>
          <ol class="steps">{one.steps.map((step) => <li key={step.path}><a href={href(['core', step.period])}>{period(step.period)}</a> <span class="dim">version {step.version}, made by {step.made_by}</span><span class="says">{step.says.replace(/^\s*[-*]\s+/, '')}</span></li>)}</ol>
          {one.sources.length > 0 && <p class="meta">Made from {one.sources.map((source) => <a key={source} href={href(['core', source])}>{period(source)}</a>)}</p>}
          <ul>{one.records.map((record, at) => <Words key={at} source={record} />)}</ul>
        </li>
      );
    case 'page':
      return (
        <li>
          <p>It stands on <a href={href(['knowledge', ...one.path.replace(/^knowledge\//, '').replace(/\.md$/, '').split('/')])}>{one.path}</a>, which says it because of</p>
          <ul>{one.events.map((event) => <li key={event.id}><a class="mono" href={href(['ledger', event.id])}>{event.id}</a> {event.content}</li>)}</ul>
        </li>
      );
  }
}

/** Where a line, an event, a period or a page comes from, asked for when it is shown. */
export function Why({ of }: { of: string }): JSX.Element {
  const why = useGet('/api/why', { query: { of } });
  if (why.busy && !why.value) return <Loading what="Looking for the words" />;
  if (why.failure?.status === 404) {
    return <p class="dim">No event and no summary says this in these words. Lines that icecore adds itself, such as counts and warnings, have no source; for others, <a href={href(['search'], { q: of.slice(0, 200) })}>search for them</a>.</p>;
  }
  if (why.failure) return <ErrorBox failure={why.failure} again={why.again} />;
  if (!why.value) return <p class="dim">Nothing was found.</p>;
  const found: readonly Because[] = 'because' in why.value ? why.value.because : [{ ...why.value, of: 'event' }];
  if (found.length === 0) return <p class="dim">Nothing that is still there says this. The words may have been forgotten.</p>;
  return <ul class="sources">{found.map((one, at) => <Reason key={at} one={one} />)}</ul>;
}
