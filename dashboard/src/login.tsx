// Coming in: the server's token is typed once and becomes a cookie that scripts cannot read. A one-time code may stand behind the `#`,
// which browsers do not send; it is taken out of the address at once, so that it is in no history.
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

/** A one-time code that is still to be shown to the server. */
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
      // A code is good for one try; what remains is the token.
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
        <p class="lead">Your memory is behind this door.</p>
        {oneTime !== undefined ? <Loading what="Logging in" /> : (
          <>
            <Text label="The server's token" type="password" value={token} onInput={setToken} autofocus required
              hint="What you set as ICECORE_TOKEN, or what stands in the file that “icecore serve” names when it starts. Or open the link that it prints." />
            {failed && <ErrorBox failure={failed} />}
            <p><Button type="submit" kind="main" busy={busy} disabled={token.trim() === ''}>Log in</Button></p>
          </>
        )}
      </form>
    </main>
  );
}
