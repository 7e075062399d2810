// Login: the server's token is typed once and becomes a cookie that scripts cannot read. A one-time code may follow the `#`, which
// browsers do not send; it is removed from the address at once, so that no history has it.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { ApiError } from './lib/api.ts';
import { toApiError, loginRequired, post } from './lib/api.ts';
import { Store, useStore } from './lib/store.ts';
import { Button, ErrorBox, Loading, TextField } from './ui/components.tsx';

function takeCodeFromAddress(): string | undefined {
  const found = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  if (found !== undefined) history.replaceState(null, '', '#/');
  return found;
}

/** The one-time code of the address, until the server has accepted or refused it. */
export const oneTimeCode = new Store<string | undefined>(takeCodeFromAddress());
addEventListener('hashchange', () => {
  const found = takeCodeFromAddress();
  if (found !== undefined) oneTimeCode.set(found);
});

export function Login(): JSX.Element {
  const pendingCode = useStore(oneTimeCode);
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [loginError, setLoginError] = useState<ApiError>();

  const logIn = async (credentials: { token: string } | { code: string }): Promise<void> => {
    setBusy(true);
    setLoginError(undefined);
    try {
      await post('/api/login', { body: credentials });
      setToken('');
      loginRequired.set(false);
      oneTimeCode.set(undefined);
    } catch (error) {
      setLoginError(toApiError(error));
      // A code works for one attempt; after that, only the token does.
      if ('code' in credentials) {
        loginRequired.set(true);
        oneTimeCode.set(undefined);
      }
    } finally {
      setBusy(false);
    }
  };

  useEffect(() => {
    document.title = 'Log in · icecore';
    if (pendingCode !== undefined) void logIn({ code: pendingCode });
  }, [pendingCode]);

  return (
    <main class="login">
      <div class="strata" aria-hidden="true">{[1, 2, 3, 4, 5, 6].map((layer) => <div key={layer} class={`l${layer}`} />)}</div>
      <form onSubmit={(event) => { event.preventDefault(); void logIn({ token: token.trim() }); }}>
        <h1>icecore</h1>
        <p class="lead">Log in to see your memory.</p>
        {pendingCode !== undefined ? <Loading what="Logging in" /> : (
          <>
            <TextField label="Server token" type="password" value={token} onInput={setToken} autofocus required
              hint="The value of ICECORE_TOKEN, or the content of the token file that “icecore serve” names at startup. Or open the login link that it prints." />
            {loginError && <ErrorBox failure={loginError} />}
            <p><Button type="submit" kind="main" busy={busy} disabled={token.trim() === ''}>Log in</Button></p>
          </>
        )}
      </form>
    </main>
  );
}
