// Parses Markdown into a tree. Untrusted input stays text: tags are shown as they are written, and nothing is fetched.
// Packs, pages and summaries use headings, lists, quotes, code, tables, rules, emphasis and links; everything else stays plain text.

export type Inline =
  | { kind: 'text'; text: string }
  | { kind: 'code'; text: string }
  | { kind: 'strong' | 'em' | 'strike'; parts: Inline[] }
  | { kind: 'link'; to: string; parts: Inline[] }
  | { kind: 'event'; id: string }
  | { kind: 'memory'; name: string };

export type Block =
  | { kind: 'heading'; level: number; parts: Inline[]; line: number }
  | { kind: 'paragraph'; parts: Inline[]; line: number }
  | { kind: 'code'; text: string; language: string; line: number }
  | { kind: 'quote'; blocks: Block[]; line: number }
  | { kind: 'list'; ordered: boolean; start: number; items: { blocks: Block[]; checked: boolean | undefined; line: number }[]; line: number }
  | { kind: 'table'; head: Inline[][]; rows: Inline[][][]; line: number }
  | { kind: 'rule'; line: number };

/** How deep lists and quotes may be nested; anything deeper is text. */
const MAX_DEPTH = 12;
const LINK = /^\[((?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]\(<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+"[^"]*")?\)/;
const EVENT = /^EVT-\d{8}-\d{3,}/;
const MEMORY = /^\[mem:([^\]\s]+)\]/;
const ADDRESS = /^https?:\/\/[^\s<>"'`)\]]+[^\s<>"'`)\].,;:!?]/;

/** The target of a link, if it is allowed: web pages, mail addresses and addresses of the dashboard. */
export function safeLink(to: string): string | undefined {
  const text = to.trim();
  if (/^(https?:\/\/|mailto:)/i.test(text)) return text;
  return text.startsWith('#/') ? text : undefined;
}

function findClosing(text: string, at: number, mark: string): number {
  for (let from = at + mark.length; ;) {
    const end = text.indexOf(mark, from);
    if (end < 0) return -1;
    // `**` within `*…*` and a marker after a space end nothing.
    if (end > at + mark.length && text[end - 1] !== ' ' && text[end - 1] !== '\\' && !(mark.length === 1 && text[end + 1] === mark)) return end;
    from = end + (mark.length === 1 && text[end + 1] === mark ? 2 : mark.length);
  }
}

/** Parses the emphasis, code and links of a line. */
export function parseInline(text: string, depth = 0): Inline[] {
  const parts: Inline[] = [];
  let plain = '';
  const put = (part: Inline): void => {
    if (plain !== '') parts.push({ kind: 'text', text: plain });
    plain = '';
    parts.push(part);
  };
  for (let at = 0; at < text.length;) {
    const here = text[at] ?? '';
    const rest = (): string => text.slice(at, at + 2_000);
    if (here === '\\' && /[\\`*_{}[\]()#+\-.!~<>|]/.test(text[at + 1] ?? '')) {
      plain += text[at + 1] ?? '';
      at += 2;
      continue;
    }
    if (here === '`') {
      const ticks = /^`+/.exec(rest())?.[0] ?? '`';
      const end = text.indexOf(ticks, at + ticks.length);
      if (end > 0) {
        put({ kind: 'code', text: text.slice(at + ticks.length, end).trim() });
        at = end + ticks.length;
        continue;
      }
      plain += ticks;
      at += ticks.length;
      continue;
    }
    if ((here === '*' || here === '_' || here === '~') && depth < MAX_DEPTH) {
      const double = text[at + 1] === here;
      const mark = double ? here + here : here;
      const inWord = here === '_' && /\w/.test(text[at - 1] ?? '');
      const opens = (text[at + mark.length] ?? ' ') !== ' ' && !inWord && (here !== '~' || double);
      const end = opens ? findClosing(text, at, mark) : -1;
      if (end > 0 && !(here === '_' && /\w/.test(text[end + mark.length] ?? ''))) {
        const kind = here === '~' ? 'strike' : double ? 'strong' : 'em';
        put({ kind, parts: parseInline(text.slice(at + mark.length, end), depth + 1) });
        at = end + mark.length;
        continue;
      }
      plain += mark;
      at += mark.length;
      continue;
    }
    if (here === '[') {
      const memory = MEMORY.exec(rest());
      if (memory) {
        put({ kind: 'memory', name: memory[1] ?? '' });
        at += memory[0].length;
        continue;
      }
      const link = depth < MAX_DEPTH ? LINK.exec(rest()) : null;
      if (link) {
        const to = safeLink(link[2] ?? '');
        // An image would be fetched from another server: its text is shown instead.
        const isPicture = plain.endsWith('!');
        if (isPicture) plain = plain.slice(0, -1);
        const label = parseInline(link[1] ?? '', depth + 1);
        if (to !== undefined && !isPicture) put({ kind: 'link', to, parts: label });
        else label.forEach(put);
        at += link[0].length;
        continue;
      }
    }
    if (here === 'E' && !/\w/.test(text[at - 1] ?? '')) {
      const event = EVENT.exec(rest());
      if (event) {
        put({ kind: 'event', id: event[0] });
        at += event[0].length;
        continue;
      }
    }
    if (here === 'h' && depth < MAX_DEPTH && !/\w/.test(text[at - 1] ?? '')) {
      const address = ADDRESS.exec(rest());
      if (address) {
        put({ kind: 'link', to: address[0], parts: [{ kind: 'text', text: address[0] }] });
        at += address[0].length;
        continue;
      }
    }
    plain += here;
    at += 1;
  }
  if (plain !== '') parts.push({ kind: 'text', text: plain });
  return parts;
}

const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(?:\[([ xX])\]\s+)?(.*)$/;
const indentWidth = (line: string): number => (/^[ \t]*/.exec(line)?.[0] ?? '').replaceAll('\t', '    ').length;
const tableCells = (line: string): string[] => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => cell.trim());

/** Parses the blocks of a text. `first` is the number of its first line. */
export function parseMarkdown(text: string, first = 1): Block[] {
  return parseBlocks(text.replaceAll('\r\n', '\n').split('\n'), first, 0);
}

function parseBlocks(lines: string[], first: number, depth: number): Block[] {
  const found: Block[] = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at] ?? '';
    const number = first + at;
    if (line.trim() === '' || /^\s*<!--.*-->\s*$/.test(line)) {
      at += 1;
      continue;
    }
    const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      const mark = fence[1] ?? '```';
      let end = at + 1;
      while (end < lines.length && !(lines[end] ?? '').trim().startsWith(mark)) end += 1;
      found.push({ kind: 'code', text: lines.slice(at + 1, end).join('\n'), language: fence[2] ?? '', line: number });
      at = end + 1;
      continue;
    }
    const heading = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/.exec(line);
    if (heading) {
      found.push({ kind: 'heading', level: heading[1]?.length ?? 1, parts: parseInline(heading[2] ?? ''), line: number });
      at += 1;
      continue;
    }
    if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      found.push({ kind: 'rule', line: number });
      at += 1;
      continue;
    }
    if (/^\s{0,3}>/.test(line) && depth < MAX_DEPTH) {
      let end = at;
      while (end < lines.length && /^\s{0,3}>/.test(lines[end] ?? '')) end += 1;
      const within = lines.slice(at, end).map((one) => one.replace(/^\s{0,3}>\s?/, ''));
      found.push({ kind: 'quote', blocks: parseBlocks(within, number, depth + 1), line: number });
      at = end;
      continue;
    }
    if (line.includes('|') && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? '') && (lines[at + 1] ?? '').includes('-')) {
      const head = tableCells(line).map((cell) => parseInline(cell));
      let end = at + 2;
      const rows: Inline[][][] = [];
      while (end < lines.length && (lines[end] ?? '').includes('|')) {
        rows.push(tableCells(lines[end] ?? '').map((cell) => parseInline(cell)));
        end += 1;
      }
      found.push({ kind: 'table', head, rows, line: number });
      at = end;
      continue;
    }
    if (ITEM.test(line) && depth < MAX_DEPTH) {
      const [list, end] = parseList(lines, at, first, depth);
      found.push(list);
      at = end;
      continue;
    }
    let end = at + 1;
    while (end < lines.length && (lines[end] ?? '').trim() !== '' && !/^\s{0,3}(#{1,6}\s|>|```|~~~)/.test(lines[end] ?? '') && !ITEM.test(lines[end] ?? '')) end += 1;
    found.push({ kind: 'paragraph', parts: parseInline(lines.slice(at, end).map((one) => one.trim()).join('\n')), line: number });
    at = end;
  }
  return found;
}

function parseList(lines: string[], from: number, first: number, depth: number): [Block, number] {
  const opened = ITEM.exec(lines[from] ?? '');
  const indent = indentWidth(lines[from] ?? '');
  const ordered = opened?.[3] !== undefined;
  const items: { blocks: Block[]; checked: boolean | undefined; line: number }[] = [];
  let at = from;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at] ?? '');
    if (!item || indentWidth(lines[at] ?? '') !== indent || (item[3] !== undefined) !== ordered) break;
    let end = at + 1;
    // Lines that are indented further belong to the item; so do continuation lines.
    while (end < lines.length) {
      const next = lines[end] ?? '';
      if (next.trim() === '') {
        if (indentWidth(lines[end + 1] ?? '') > indent && (lines[end + 1] ?? '').trim() !== '') end += 1;
        else break;
      } else if (indentWidth(next) > indent || !(ITEM.test(next) || /^\s{0,3}(#{1,6}\s|>|```|~~~)/.test(next))) end += 1;
      else break;
    }
    const within = [item[5] ?? '', ...lines.slice(at + 1, end).map((one) => one.replace(new RegExp(`^\\s{0,${indent + 4}}`), (blank) => blank.slice(indent + 2)))];
    items.push({ blocks: parseBlocks(within, first + at, depth + 1), checked: item[4] === undefined ? undefined : item[4] !== ' ', line: first + at });
    at = end;
    while (at < lines.length && (lines[at] ?? '').trim() === '' && ITEM.test(lines[at + 1] ?? '') && indentWidth(lines[at + 1] ?? '') === indent) at += 1;
  }
  return [{ kind: 'list', ordered, start: Number(opened?.[3] ?? 1), items, line: first + from }, Math.max(at, from + 1)];
}
