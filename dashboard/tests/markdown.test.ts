// Markdown becomes only text, emphasis and links with allowed targets.
import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { parseMarkdown, parseInline, safeLink } from '../src/lib/markdown.ts';
import type { Block, Inline } from '../src/lib/markdown.ts';

function plain(parts: Inline[]): string {
  return parts.map((part) => {
    switch (part.kind) {
      case 'text': return part.text;
      case 'code': return `<${part.text}>`;
      case 'strong': return `**${plain(part.parts)}**`;
      case 'em': return `*${plain(part.parts)}*`;
      case 'strike': return `~${plain(part.parts)}~`;
      case 'link': return `[${plain(part.parts)}|${part.to}]`;
      case 'event': return `{${part.id}}`;
      case 'memory': return `{mem ${part.name}}`;
    }
  }).join('');
}

function shape(block: Block): unknown {
  switch (block.kind) {
    case 'heading': return [`h${block.level}`, plain(block.parts)];
    case 'paragraph': return plain(block.parts);
    case 'code': return ['code', block.text];
    case 'quote': return ['quote', ...block.blocks.map(shape)];
    case 'list': return [block.ordered ? 'ol' : 'ul', ...block.items.map((item) => item.blocks.map(shape))];
    case 'table': return ['table', block.head.map(plain), ...block.rows.map((row) => row.map(plain))];
    case 'rule': return 'rule';
  }
}

test('emphasis, code, links and source markers are parsed', () => {
  for (const [text, expected] of [
    ['a **b** c', 'a **b** c'],
    ['*a* and _b_, not snake_case_word', '*a* and *b*, not snake_case_word'],
    ['2 * 3 * 4', '2 * 3 * 4'],
    ['~~old~~ new', '~old~ new'],
    ['`a **b**`', '<a **b**>'],
    ['``a ` b``', '<a ` b>'],
    ['[a](https://b.example/c_(d))', '[a|https://b.example/c_(d)]'],
    ['see https://b.example/x.', 'see [https://b.example/x|https://b.example/x].'],
    ['so it is (EVT-20260213-001)', 'so it is ({EVT-20260213-001})'],
    ['known [mem:tea_shop]', 'known {mem tea_shop}'],
    ['**bold with *em* within**', '**bold with *em* within**'],
    ['\\*not\\*', '*not*'],
    ['an open ** mark', 'an open ** mark'],
    ['an open ` tick', 'an open ` tick'],
  ] as const) assert.equal(plain(parseInline(text)), expected, text);
});

test('untrusted input stays text', () => {
  for (const [text, expected] of [
    ['<script>alert(1)</script>', '<script>alert(1)</script>'],
    ['<img src=x onerror=alert(1)>', '<img src=x onerror=alert(1)>'],
    ['[a](javascript:alert(1))', 'a'],
    ['[a](JaVaScRiPt:alert(1))', 'a'],
    ['[a]( javascript:alert(1))', '[a]( javascript:alert(1))'],
    ['[a](data:text/html,x)', 'a'],
    ['[a](//evil.example)', 'a'],
    ['![beacon](https://evil.example/x.png)', 'beacon'],
    ['[a](vbscript:x)', 'a'],
  ] as const) assert.equal(plain(parseInline(text)), expected, text);
  for (const to of ['javascript:x', 'data:x', 'file:///etc', '//evil', '/api/status', 'blob:x', ' \u0001javascript:x']) assert.equal(safeLink(to), undefined, to);
  for (const to of ['https://a', 'HTTP://a', 'mailto:a@b', '#/ledger']) assert.ok(safeLink(to), to);
});

test('nested blocks are parsed', () => {
  for (const [text, expected] of [
    ['# A\n\nb\nc', [['h1', 'A'], 'b\nc']],
    ['- a\n- b\n  - c\n- d', [['ul', ['a'], ['b', ['ul', ['c']]], ['d']]]],
    ['1. a\n2. b', [['ol', ['a'], ['b']]]],
    ['> a\n> - b', [['quote', 'a', ['ul', ['b']]]]],
    ['```js\n<b>\n```\nx', [['code', '<b>'], 'x']],
    ['```\nnever closed', [['code', 'never closed']]],
    ['| a | b |\n|---|---|\n| 1 | 2 |', [['table', ['a', 'b'], ['1', '2']]]],
    ['a\n\n---\n\nb', ['a', 'rule', 'b']],
    ['<!-- a mark -->\nb', ['b']],
    ['text\n- a', ['text', ['ul', ['a']]]],
    ['- [x] done\n- [ ] open', [['ul', ['done'], ['open']]]],
  ] as const) assert.deepEqual(parseMarkdown(text).map(shape), expected, text);
});

test('pathological input is parsed in bounded time', () => {
  const begun = performance.now();
  for (const text of ['*'.repeat(50_000), '['.repeat(50_000), '> '.repeat(20_000), '`'.repeat(50_000), '- '.repeat(20_000), '_a'.repeat(20_000), '[a]('.repeat(10_000), '#'.repeat(50_000), '|'.repeat(20_000)]) parseMarkdown(text);
  assert.ok(performance.now() - begun < 4_000, `${performance.now() - begun} ms`);
});
