// Source markers at the end of a page's lines: the source of a statement, when it was last confirmed, and its event. They are removed
// from the text and shown as small links, so that the page is readable.
import type { Schema } from '../../lib/api.ts';

/** How fresh a statement is. */
export type Freshness = Schema['PageEvent']['freshness'];

export interface SourceMarker {
  events: string[];
  source: string | undefined;
  verified: string | undefined;
}

export interface MarkedPage {
  /** The page without its markers; line numbers do not change. */
  text: string;
  /** The markers by line number, from 1. */
  markers: Map<number, SourceMarker>;
}

const MARKERS = /((?:\s*\[(?:source: [^\]\n]*|verified: [^\]\n]*|EVT-\d{8}-\d{3,})\])+)\s*$/;
const ITEM = /^\s*(?:[-*+]|\d+[.)])\s/;

/** Separates a page from its markers. */
export function extractMarkers(page: string): MarkedPage {
  const markers = new Map<number, SourceMarker>();
  const lines = page.split('\n');
  const alone = (at: number): boolean => /^\s*$|^#/.test(lines[at - 1] ?? '') && /^\s*$|^#/.test(lines[at + 1] ?? '');
  const text = lines.map((line, at) => {
    const found = MARKERS.exec(line);
    // A line in the middle of a paragraph has no place for a link; its markers stay in the text.
    if (!found || !(ITEM.test(line) || alone(at))) return line;
    const markerText = found[1] ?? '';
    markers.set(at + 1, {
      events: [...markerText.matchAll(/\[(EVT-\d{8}-\d{3,})\]/g)].map((one) => one[1] ?? ''),
      source: /\[source: ([^\]]*)\]/.exec(markerText)?.[1],
      verified: /\[verified: ([^\]]*)\]/.exec(markerText)?.[1],
    });
    return line.slice(0, found.index);
  });
  return { text: text.join('\n'), markers };
}

/** The file name of a page with this title. */
export function slug(title: string): string {
  return title.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 60);
}
