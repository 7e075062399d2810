// The sources of a line, requested when they are shown.
import type { JSX } from 'preact';
import { useGet } from '../lib/api.ts';
import { href } from '../lib/route.ts';
import { ErrorBox, Loading } from './components.tsx';
import { Sources } from './sources.tsx';

/** The sources of an event, a period, a page or a line of a pack. */
export function WhySources({ of }: { of: string }): JSX.Element {
  const why = useGet('/api/why', { query: { of } });
  if (why.failure?.status === 404) {
    return <p class="dim">No event or summary contains this text. Lines that icecore generates, such as counts and warnings, have no source; for others, <a href={href(['search'], { q: of.slice(0, 200) })}>search for the text</a>.</p>;
  }
  if (why.failure) return <ErrorBox failure={why.failure} again={why.reload} />;
  if (!why.value) return <Loading what="Looking up the sources" />;
  return <Sources because={'because' in why.value ? why.value.because : [{ ...why.value, of: 'event' }]} />;
}
