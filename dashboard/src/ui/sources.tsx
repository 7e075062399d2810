// Where something comes from: the events it names, the summaries on the way, and at the end the words themselves.
import type { JSX } from 'preact';
import type { Reply, Schema } from '../lib/api.ts';
import { moment, period as periodName } from '../lib/format.ts';
import { href } from '../lib/route.ts';
import { classes } from './parts.tsx';

export type Because = Reply<'/api/core/{period}/why'>['because'][number];

/** A text with the words in it that count marked. */
function Marked({ text, quote }: { text: string; quote: string | undefined }): JSX.Element {
  const at = quote === undefined || quote === '' || quote === text ? -1 : text.indexOf(quote);
  return at < 0 || quote === undefined ? <>{text}</> : <>{text.slice(0, at)}<mark>{quote}</mark>{text.slice(at + quote.length)}</>;
}

/** One source, down to the words; `quote` is what of it counts. */
export function Source({ source, quote }: { source: Schema['TrailSource']; quote?: string | undefined }): JSX.Element {
  switch (source.kind) {
    case 'record':
      return (
        <li>
          <blockquote><Marked text={source.text ?? ''} quote={quote} /></blockquote>
          <p class="meta"><span>{source.speaker}{source.ts !== undefined && `, ${moment(source.ts)}`}</span>{source.ts !== undefined && <a href={href(['core', source.ts.slice(0, 10)], { message: source.id })}>in its day</a>}</p>
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
      return <li class="dim">It was in {source.path}, which is not there any more.</li>;
    case 'elsewhere':
      return <li class="dim">It was learnt elsewhere: {source.name}.</li>;
    case 'live':
      return <li class="dim">It was told directly.</li>;
  }
}

/** Everything that something goes back to. */
export function Sources({ because }: { because: readonly Because[] }): JSX.Element {
  return (
    <ul class="sources">
      {because.length === 0 && <li class="dim">Nothing that is still there says this. The words may have been forgotten.</li>}
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
                <p class="dim">It stands on {one.path}, which says it because of</p>
                <ul>{one.events.map((event) => <li key={event.id}><a href={href(['ledger', event.id])}>{event.id}</a> {event.content}</li>)}</ul>
              </li>
            );
        }
      })}
    </ul>
  );
}
