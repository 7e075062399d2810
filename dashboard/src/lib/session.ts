// The login session: its permissions, and logging out.
import { get, loginRequired, post } from './api.ts';
import type { Reply } from './api.ts';
import { Store } from './store.ts';

/** The session and its permissions; undefined until the server has answered. */
export const session = new Store<Reply<'/api/session'> | undefined>(undefined);

/** Loads the session. A 401 shows the login page, as for every request. */
export function loadSession(): void {
  get('/api/session', {}).then((value) => session.set(value), () => session.set(undefined));
}

/** Ends this browser's session. */
export async function logOut(): Promise<void> {
  await post('/api/logout', { body: {} });
  session.set(undefined);
  loginRequired.set(true);
}
