// What stands at the end of a page's lines: where a statement comes from, when it was last confirmed, which event it is. It is taken
// out of the text and shown as a small link, so that one reads the page and not its bookkeeping.
import type { Schema } from '../../lib/api.ts';

/** How far a statement can be relied on. */
export type Freshness = Schema['PageEvent']['freshness'];

export interface Mark {
  events: string[];
  source: string | undefined;
  verified: string | undefined;
}

export interface Read {
  /** The page without its marks; every line is where it was. */
  text: string;
  /** The marks of each line, which are numbered from 1. */
  marks: Map<number, Mark>;
}

const MARKS = /((?:\s*\[(?:source: [^\]\n]*|verified: [^\]\n]*|EVT-\d{8}-\d{3,})\])+)\s*$/;
const ITEM = /^\s*(?:[-*+]|\d+[.)])\s/;

/** Takes the marks out of a page. */
export function read(page: string): Read {
  const marks = new Map<number, Mark>();
  const lines = page.split('\n');
  const alone = (at: number): boolean => /^\s*$|^#/.test(lines[at - 1] ?? '') && /^\s*$|^#/.test(lines[at + 1] ?? '');
  const text = lines.map((line, at) => {
    const found = MARKS.exec(line);
    // A line in the middle of a paragraph has no place of its own for a link; there the marks stay where they are.
    if (!found || !(ITEM.test(line) || alone(at))) return line;
    const said = found[1] ?? '';
    marks.set(at + 1, {
      events: [...said.matchAll(/\[(EVT-\d{8}-\d{3,})\]/g)].map((one) => one[1] ?? ''),
      source: /\[source: ([^\]]*)\]/.exec(said)?.[1],
      verified: /\[verified: ([^\]]*)\]/.exec(said)?.[1],
    });
    return line.slice(0, found.index);
  });
  return { text: text.join('\n'), marks };
}

/** The name of a page's file for a title. */
export function slug(title: string): string {
  return title.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 60);
}
