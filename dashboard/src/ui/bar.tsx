// How much of something is used, as a bar.
import type { JSX } from 'preact';

/** `part` of `whole`; what goes beyond it is warm. The words beside it say the same, so it is not read out. */
export function Bar({ part, whole, warm = false }: { part: number; whole: number; warm?: boolean }): JSX.Element {
  const most = Math.max(part, whole, 1);
  const within = Math.min(part, whole) / most * 100;
  return (
    <svg class="usage" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="room" width="100" height="6" />
      <rect class={warm ? 'over' : 'used'} width={within} height="6" />
      {part > whole && <rect class="over" x={within} width={100 - within} height="6" />}
    </svg>
  );
}
