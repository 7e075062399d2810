// A source, down to the words: what a statement or a sentence goes back to.
import type { JSX } from 'preact';
import type { Schema } from '../lib/api.ts';
import { moment } from '../lib/format.ts';
import { href } from '../lib/route.ts';
import { classes } from './parts.tsx';

/** A text with the words in it that matter marked. */
function Marked({ text, quote }: { text: string; quote: string | undefined }): JSX.Element {
  const at = quote === undefined || quote === '' || quote === text ? -1 : text.indexOf(quote);
  return at < 0 || quote === undefined ? <>{text}</> : <>{text.slice(0, at)}<mark>{quote}</mark>{text.slice(at + quote.length)}</>;
}

/** An item of a list of sources; `quote` is what of it counts. */
export function Source({ source, quote }: { source: Schema['TrailSource']; quote?: string | undefined }): JSX.Element {
  switch (source.kind) {
    case 'record':
      return (
        <li>
          <blockquote tabIndex={0}><Marked text={source.text ?? ''} quote={quote} /></blockquote>
          <p class="meta">{source.speaker}{source.ts !== undefined && <>, {moment(source.ts)} <a href={href(['core', source.ts.slice(0, 10)], { message: source.id })}>in its day</a></>}</p>
        </li>
      );
    case 'file':
      return (
        <li>
          {(source.context ?? []).length > 0 && <blockquote tabIndex={0}>{(source.context ?? []).map(([line, text]) => <span key={line} class={classes('line', line === source.line && 'said')}>{text}{'\n'}</span>)}</blockquote>}
          <p class="meta">{source.path}{source.line != null && `, line ${source.line}`}</p>
        </li>
      );
    case 'gone':
      return <li class="dim">It was in {source.path}, which is not there any more.</li>;
    case 'elsewhere':
      return <li class="dim">It was learnt elsewhere: {source.name}.</li>;
    default:
      return <li class="dim">It was told directly.</li>;
  }
}
