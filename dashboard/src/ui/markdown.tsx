// Renders Markdown: nodes are created one by one, never from text that contains tags.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Block, Inline } from '../lib/markdown.ts';
import { parseMarkdown, parseInline } from '../lib/markdown.ts';
import { href } from '../lib/route.ts';

function renderInline(parts: readonly Inline[]): ComponentChildren {
  return parts.map((part, at) => {
    switch (part.kind) {
      case 'text':
        return part.text;
      case 'code':
        return <code key={at}>{part.text}</code>;
      case 'strong':
        return <strong key={at}>{renderInline(part.parts)}</strong>;
      case 'em':
        return <em key={at}>{renderInline(part.parts)}</em>;
      case 'strike':
        return <del key={at}>{renderInline(part.parts)}</del>;
      case 'link':
        return part.to.startsWith('#/')
          ? <a key={at} href={part.to}>{renderInline(part.parts)}</a>
          : <a key={at} href={part.to} target="_blank" rel="noopener noreferrer nofollow">{renderInline(part.parts)}</a>;
      case 'event':
        return <a key={at} class="source" href={href(['ledger', part.id])}>{part.id}</a>;
      case 'memory':
        return <a key={at} class="source" href={href(['search'], { q: part.name, kind: 'memory' })}>{part.name}</a>;
    }
  });
}

interface RenderOptions {
  /** By how many levels headings are lowered: within a view, `#` is not the page title. */
  lower: number;
  /** Content beside a line, such as links to its sources. */
  beside: ((line: number) => ComponentChildren) | undefined;
}

function renderBlock(block: Block, at: number, show: RenderOptions): JSX.Element {
  const beside = show.beside?.(block.line);
  switch (block.kind) {
    case 'heading': {
      const Heading = `h${Math.min(block.level + show.lower, 6)}` as 'h2';
      return <Heading key={at}>{renderInline(block.parts)}</Heading>;
    }
    case 'paragraph':
      return <p key={at}>{renderInline(block.parts)}{beside}</p>;
    case 'code':
      return <pre key={at} tabIndex={0}><code>{block.text}</code></pre>;
    case 'quote':
      return <blockquote key={at}>{block.blocks.map((within, index) => renderBlock(within, index, show))}</blockquote>;
    case 'rule':
      return <hr key={at} />;
    case 'table':
      return (
        <div key={at} class="tablebox">
          <table>
            <thead><tr>{block.head.map((cell, index) => <th key={index} scope="col">{renderInline(cell)}</th>)}</tr></thead>
            <tbody>{block.rows.map((row, index) => <tr key={index}>{row.map((cell, column) => <td key={column}>{renderInline(cell)}</td>)}</tr>)}</tbody>
          </table>
        </div>
      );
    case 'list': {
      const items = block.items.map((item, index) => {
        // A single line needs no paragraph.
        const [only, ...more] = item.blocks;
        const tight = only?.kind === 'paragraph' ? <>{renderInline(only.parts)}{show.beside?.(item.line)}</> : only && renderBlock(only, 0, show);
        const box = item.checked === undefined ? undefined : <span class="box" role="img" aria-label={item.checked ? 'done' : 'open'}>{item.checked ? '☑ ' : '☐ '}</span>;
        return <li key={index}>{box}{tight}{more.map((within, inner) => renderBlock(within, inner + 1, show))}</li>;
      });
      return block.ordered ? <ol key={at} start={block.start}>{items}</ol> : <ul key={at}>{items}</ul>;
    }
  }
}

/** Renders a Markdown text. */
export function Markdown({ text, lower = 1, beside, first = 1 }: { text: string; lower?: number; beside?: (line: number) => ComponentChildren; first?: number }): JSX.Element {
  const read = useMemo(() => parseMarkdown(text, first), [text, first]);
  return <div class="markdown">{read.map((block, at) => renderBlock(block, at, { lower, beside }))}</div>;
}

/** Renders a line of Markdown, without blocks. */
export function MarkdownLine({ text }: { text: string }): JSX.Element {
  const parts = useMemo(() => parseInline(text), [text]);
  return <span>{renderInline(parts)}</span>;
}
