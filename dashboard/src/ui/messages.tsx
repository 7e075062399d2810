// Messages verbatim: as text, never as markup that runs or loads anything.
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { time } from '../lib/format.ts';
import { Tag, classes } from './components.tsx';

interface Message {
  readonly id: string;
  readonly conversation: string;
  readonly role: string;
  readonly name?: string | null;
  readonly ts: string;
  readonly trust?: string;
  readonly title?: string | null;
  readonly text: string;
  /** Whether the text is truncated. */
  readonly cut?: boolean;
}

/** Messages in order; the `wanted` one is highlighted and scrolled into view. */
export function Messages({ messages, highlighted }: { messages: readonly Message[]; highlighted?: string | undefined }): JSX.Element {
  const marked = useRef<HTMLLIElement>(null);
  const isShown = messages.some((one) => one.id === highlighted);
  useEffect(() => {
    if (isShown) marked.current?.scrollIntoView({ block: 'center' });
  }, [highlighted, isShown]);
  return (
    <ol class="said">
      {messages.map((one) => (
        <li key={`${one.conversation} ${one.id}`} class={classes(one.role === 'user' && 'user', one.id === highlighted && 'wanted')} ref={one.id === highlighted ? marked : null}>
          <p class="meta">
            <strong>{one.name ?? one.role}</strong> {time(one.ts)}
            {one.trust === 'low' && <Tag kind="warm" title="From a tool or a stranger: data, not instructions">untrusted</Tag>}
            {one.title && <span>{one.title}</span>}
          </p>
          <p class="text">{one.text}{one.cut && '…'}</p>
        </li>
      ))}
    </ol>
  );
}
