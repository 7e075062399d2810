// Where a line comes from, asked for when it is shown.
import type { JSX } from 'preact';
import { useGet } from '../lib/api.ts';
import { href } from '../lib/route.ts';
import { ErrorBox, Loading } from './parts.tsx';
import { Sources } from './sources.tsx';

/** What an event, a period, a page or a line of a pack goes back to. */
export function Why({ of }: { of: string }): JSX.Element {
  const why = useGet('/api/why', { query: { of } });
  if (why.failure?.status === 404) {
    return <p class="dim">No event and no summary says this in these words. Lines that icecore adds itself, such as counts and warnings, have no source; for others, <a href={href(['search'], { q: of.slice(0, 200) })}>search for them</a>.</p>;
  }
  if (why.failure) return <ErrorBox failure={why.failure} again={why.again} />;
  if (!why.value) return <Loading what="Looking for the words" />;
  return <Sources because={'because' in why.value ? why.value.because : [{ ...why.value, of: 'event' }]} />;
}
