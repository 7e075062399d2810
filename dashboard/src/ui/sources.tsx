// Provenance: the events that a text names, the summaries in between, and the original messages.
import type { JSX } from 'preact';
import type { Reply, Schema } from '../lib/api.ts';
import { moment, period as periodName } from '../lib/format.ts';
import { href } from '../lib/route.ts';
import { classes } from './components.tsx';

export type Provenance = Reply<'/api/core/{period}/why'>['because'][number];

/** A text with the quoted part highlighted. */
function Highlighted({ text, quote }: { text: string; quote: string | undefined }): JSX.Element {
  const at = quote === undefined || quote === '' || quote === text ? -1 : text.indexOf(quote);
  return at < 0 || quote === undefined ? <>{text}</> : <>{text.slice(0, at)}<mark>{quote}</mark>{text.slice(at + quote.length)}</>;
}

/** One source, down to the message; `quote` is the relevant part. */
export function Source({ source, quote }: { source: Schema['OriginalSource']; quote?: string | undefined }): JSX.Element {
  switch (source.kind) {
    case 'record':
      return (
        <li>
          <blockquote><Highlighted text={source.text ?? ''} quote={quote} /></blockquote>
          <p class="meta"><span>{source.speaker}{source.ts !== undefined && `, ${moment(source.ts)}`}</span>{source.ts !== undefined && <a href={href(['core', source.ts.slice(0, 10)], { message: source.id })}>show in context</a>}</p>
        </li>
      );
    case 'file':
      return (
        <li>
          <blockquote>{(source.context ?? []).map(([line, text]) => <span key={line} class={classes('line', line === source.line && 'this')}>{text}{'\n'}</span>)}</blockquote>
          <p class="meta">{source.path}{source.line != null && `, line ${source.line}`}</p>
        </li>
      );
    case 'gone':
      return <li class="dim">The source was in {source.path}, which no longer exists.</li>;
    case 'elsewhere':
      return <li class="dim">Recorded outside this vault: {source.name}.</li>;
    case 'live':
      return <li class="dim">Recorded directly.</li>;
  }
}

/** All sources of a text. */
export function Sources({ because }: { because: readonly Provenance[] }): JSX.Element {
  return (
    <ul class="sources">
      {because.length === 0 && <li class="dim">No source found. It may have been forgotten.</li>}
      {because.map((one, at) => {
        switch (one.of) {
          case 'event':
            return (
              <li key={at}>
                <p><a href={href(['ledger', one.entry.id])}>{one.entry.id}</a> {one.entry.content}</p>
                <ul><Source source={one.source} /></ul>
              </li>
            );
          case 'summary':
            return (
              <li key={at}>
                {one.steps.length > 1 && <ol class="steps">{one.steps.slice(1).map((step) => <li key={step.period}><a href={href(['core', step.period])}>{periodName(step.period)}</a><span class="says">{step.says}</span></li>)}</ol>}
                <ul>{one.records.map((record, index) => <Source key={index} source={record} />)}</ul>
              </li>
            );
          case 'page':
            return (
              <li key={at}>
                <p class="dim">From the page {one.path}, which is based on</p>
                <ul>{one.events.map((event) => <li key={event.id}><a href={href(['ledger', event.id])}>{event.id}</a> {event.content}</li>)}</ul>
              </li>
            );
        }
      })}
    </ul>
  );
}
