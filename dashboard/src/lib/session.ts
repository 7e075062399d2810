// Who looks: what they may do, and the way out.
import { get, locked, post } from './api.ts';
import type { Reply } from './api.ts';
import { Store } from './store.ts';

/** What whoever looks may do; unknown until the server has said it. */
export const session = new Store<Reply<'/api/session'> | undefined>(undefined);

/** Asks the server who it is talking to. A refusal shows the login, as everywhere. */
export function meet(): void {
  get('/api/session', {}).then((value) => session.set(value), () => session.set(undefined));
}

/** Ends the session of this browser. */
export async function leave(): Promise<void> {
  await post('/api/logout', { body: {} });
  session.set(undefined);
  locked.set(true);
}
