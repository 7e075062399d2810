// Problems, each with its fix: a link within the dashboard, or a command to copy.
import type { ComponentChildren, JSX } from 'preact';
import { href } from '../../lib/route.ts';
import { MarkdownLine } from '../../ui/markdown.tsx';
import { CopyButton } from '../../ui/components.tsx';
import { commandsIn } from './commands.ts';

// The view that does the same as a command.
function viewFor(command: string): readonly [to: string, said: string] | undefined {
  const [, group, subcommand] = command.split(' ');
  const verb = group === 'summary' ? subcommand : group;
  switch (verb) {
    case 'review':
      return [href(['runs', 'review']), 'Review'];
    case 'rollup':
    case 'consolidate':
      return [href(['runs', 'due']), 'Summarize what is due'];
    case 'conflicts':
      return [href(['health'], { part: 'conflicts' }), 'Resolve'];
    case 'doctor':
    case 'verify':
      return [href(['health'], { part: 'integrity' }), 'Open Integrity'];
    case 'search':
      return [href(['search']), 'Search'];
    default:
      return undefined;
  }
}

/** A problem with its fixes; `action` is a fix on this page. */
export function Problem({ text, action }: { text: string; action?: ComponentChildren }): JSX.Element {
  const named = commandsIn(text);
  const to = named.map(viewFor).find((one) => one !== undefined);
  return (
    <li class="problem">
      <p><MarkdownLine text={text.charAt(0).toUpperCase() + text.slice(1)} /></p>
      <p class="whatnow">
        {action}
        {to && <a class="button small" href={to[0]}>{to[1]}</a>}
        {named.map((command) => <CopyButton key={command} text={() => command}>Copy <code>{command}</code></CopyButton>)}
      </p>
    </li>
  );
}

/** A command with a copy button. */
export function Command({ text }: { text: string }): JSX.Element {
  return <span class="command"><code>{text}</code><CopyButton text={() => text} /></span>;
}
