// Login: the server's token is typed once and becomes a cookie that scripts cannot read. A one-time code may follow the `#`, which
// browsers do not send; it is removed from the address at once, so that no history has it.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Failure } from './lib/api.ts';
import { failure, locked, post } from './lib/api.ts';
import { Store, useStore } from './lib/store.ts';
import { Button, ErrorBox, Loading, Text } from './ui/parts.tsx';

function taken(): string | undefined {
  const found = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  if (found !== undefined) history.replaceState(null, '', '#/');
  return found;
}

/** The one-time code of the address, until the server has accepted or refused it. */
export const code = new Store<string | undefined>(taken());
addEventListener('hashchange', () => {
  const found = taken();
  if (found !== undefined) code.set(found);
});

export function Login(): JSX.Element {
  const oneTime = useStore(code);
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<Failure>();

  const enter = async (shown: { token: string } | { code: string }): Promise<void> => {
    setBusy(true);
    setFailed(undefined);
    try {
      await post('/api/login', { body: shown });
      setToken('');
      locked.set(false);
      code.set(undefined);
    } catch (error) {
      setFailed(failure(error));
      // A code works for one attempt; after that, only the token does.
      if ('code' in shown) {
        locked.set(true);
        code.set(undefined);
      }
    } finally {
      setBusy(false);
    }
  };

  useEffect(() => {
    document.title = 'Log in · icecore';
    if (oneTime !== undefined) void enter({ code: oneTime });
  }, [oneTime]);

  return (
    <main class="login">
      <div class="strata" aria-hidden="true">{[1, 2, 3, 4, 5, 6].map((layer) => <div key={layer} class={`l${layer}`} />)}</div>
      <form onSubmit={(event) => { event.preventDefault(); void enter({ token: token.trim() }); }}>
        <h1>icecore</h1>
        <p class="lead">Log in to see your memory.</p>
        {oneTime !== undefined ? <Loading what="Logging in" /> : (
          <>
            <Text label="Server token" type="password" value={token} onInput={setToken} autofocus required
              hint="The value of ICECORE_TOKEN, or the content of the token file that “icecore serve” names at startup. Or open the login link that it prints." />
            {failed && <ErrorBox failure={failed} />}
            <p><Button type="submit" kind="main" busy={busy} disabled={token.trim() === ''}>Log in</Button></p>
          </>
        )}
      </form>
    </main>
  );
}
