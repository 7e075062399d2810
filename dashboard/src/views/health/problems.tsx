// What is wrong, each with what now: something to press, or the command to copy.
import type { ComponentChildren, JSX } from 'preact';
import { href } from '../../lib/route.ts';
import { MarkdownLine } from '../../ui/markdown.tsx';
import { Copy } from '../../ui/parts.tsx';
import { commands } from './commands.ts';

// Where the dashboard itself can do what a command does.
function place(command: string): readonly [to: string, said: string] | undefined {
  const [, verb] = command.split(' ');
  switch (verb) {
    case 'review':
      return [href(['runs', 'review']), 'Review them'];
    case 'rollup':
    case 'consolidate':
      return [href(['runs', 'due']), 'Press what is due'];
    case 'conflicts':
      return [href(['health'], { part: 'conflicts' }), 'Settle them'];
    case 'doctor':
    case 'verify':
      return [href(['health'], { part: 'integrity' }), 'Do it here'];
    case 'search':
      return [href(['search']), 'Search'];
    default:
      return undefined;
  }
}

/** A message with what to do about it; `action` is what this page can do. */
export function Problem({ text, action }: { text: string; action?: ComponentChildren }): JSX.Element {
  const named = commands(text);
  const to = named.map(place).find((one) => one !== undefined);
  return (
    <li class="problem">
      <p><MarkdownLine text={text.charAt(0).toUpperCase() + text.slice(1)} /></p>
      <p class="whatnow">
        {action}
        {to && <a class="button small" href={to[0]}>{to[1]}</a>}
        {named.map((command) => <Copy key={command} text={() => command}>Copy <code>{command}</code></Copy>)}
      </p>
    </li>
  );
}

/** A command, with a button that copies it. */
export function Command({ text }: { text: string }): JSX.Element {
  return <span class="command"><code>{text}</code><Copy text={() => text} /></span>;
}
