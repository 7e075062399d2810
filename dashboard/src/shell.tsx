// The frame around every view: navigation rail, keyboard shortcuts, toasts, and the login page when it is required.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { loginRequired, serverReachable } from './lib/api.ts';
import { useKeys } from './lib/keyboard.ts';
import { go, href, useRoute } from './lib/route.ts';
import { logOut, loadSession, session } from './lib/session.ts';
import { useStore } from './lib/store.ts';
import { switchTheme, theme } from './lib/theme.ts';
import { Button, Dialog, EmptyState, Key, Toast, showToast } from './ui/components.tsx';
import { Login, oneTimeCode } from './login.tsx';
import { VIEWS } from './views/index.ts';
import type { View } from './views/view.ts';

const SUN = 'M12 7.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9ZM12 2v2.500M12 19.500V22M2 12h2.500M19.500 12H22M4.900 4.900l1.800 1.800M17.300 17.300l1.800 1.800M4.900 19.100l1.800-1.800M17.300 6.700l1.800-1.800';
const MOON = 'M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500Z';
/** The views in the bottom bar of a narrow screen; the others are behind More. */
const BOTTOM_BAR_VIEWS = new Set(['home', 'core', 'ledger', 'search']);
const MENU = 'M4 7h16M4 12h16M4 17h16';
const OUT = 'M10 4.500H5.500v15H10M14.500 8.500 18 12l-3.500 3.500M18 12H9.500';
const KEYBOARD = 'M3 7.500h18v9H3zM6.500 10.500h.01M10 10.500h.01M14 10.500h.01M17.500 10.500h.01M8 13.700h8';

export function Icon({ path }: { path: string }): JSX.Element {
  return <svg class="icon" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><path d={path} /></svg>;
}

function Brand(): JSX.Element {
  return (
    <a class="brand" href="#/" aria-label="icecore, home">
      <svg viewBox="0 0 16 28" width="14" height="25" aria-hidden="true">
        <clipPath id="brand"><rect width="16" height="28" rx="5" /></clipPath>
        <g clip-path="url(#brand)">
          <rect class="b1" width="16" height="28" /><rect class="b2" y="6" width="16" height="22" /><rect class="b3" y="10" width="16" height="18" />
          <rect class="b1" y="17" width="16" height="2" /><rect class="b4" y="19" width="16" height="9" /><rect class="b5" y="24" width="16" height="4" />
        </g>
      </svg>
      <span>icecore</span>
    </a>
  );
}

function NavItem({ view, current, onClick }: { view: View; current: boolean; onClick?: () => void }): JSX.Element {
  return (
    <li class={BOTTOM_BAR_VIEWS.has(view.id) ? 'inbar' : ''}>
      <a href={href(view.id === VIEWS[0]?.id ? [] : [view.id])} aria-current={current ? 'page' : undefined} title={`${view.title} (g ${view.key})`} onClick={onClick}>
        <Icon path={view.icon} /><span>{view.title}</span>
      </a>
    </li>
  );
}

function ShortcutsDialog({ open, onClose }: { open: boolean; onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keyboard shortcuts" open={open} onClose={onClose}>
      <dl class="keys">
        {VIEWS.map((view) => <div key={view.id}><dt><Key>g</Key> <Key>{view.key}</Key></dt><dd>{view.title}</dd></div>)}
        <div><dt><Key>/</Key></dt><dd>Search</dd></div>
        <div><dt><Key>↑</Key> <Key>↓</Key> <Key>Home</Key> <Key>End</Key></dt><dd>Move through a list</dd></div>
        <div><dt><Key>Enter</Key></dt><dd>Open the selected item</dd></div>
        <div><dt><Key>Esc</Key></dt><dd>Close, or go up one level</dd></div>
        <div><dt><Key>t</Key></dt><dd>Switch between light and dark</dd></div>
        <div><dt><Key>?</Key></dt><dd>Show this list</dd></div>
      </dl>
      <p class="dim">In the core, <Key>+</Key> and <Key>−</Key> zoom, arrows move, <Key>0</Key> shows everything, <Key>Enter</Key> opens a layer. In the ledger, <Key>n</Key> records a statement; in Knowledge, it creates a page. In plots, <Key>←</Key> and <Key>→</Key> move from day to day. In packs, <Key>↓</Key> and <Key>↑</Key> move from line to line, <Key>Enter</Key> shows the source of a line.</p>
    </Dialog>
  );
}

export function Shell(): JSX.Element {
  const route = useRoute();
  const isLocked = useStore(loginRequired);
  const isReached = useStore(serverReachable);
  const shownTheme = useStore(theme);
  const pendingCode = useStore(oneTimeCode);
  const currentSession = useStore(session);
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  const view = route.view === '' ? VIEWS[0] : VIEWS.find((one) => one.id === route.view);

  const chords = useMemo(() => new Map(VIEWS.map((one) => [one.key, () => go(one.id === VIEWS[0]?.id ? [] : [one.id])])), []);
  const single = useMemo(() => new Map([
    ['?', () => setHelp(true)],
    ['t', switchTheme],
    ['/', () => {
      go(['search']);
      // If Search is open already, the address does not change: focus the field directly.
      document.querySelector<HTMLElement>('#search-words')?.focus();
    }],
  ]), []);
  useKeys(chords, single);

  // A new view starts at its top; the focus moves there too, for screen readers.
  const before = useRef(view?.id);
  useEffect(() => {
    if (before.current === view?.id) return;
    before.current = view?.id;
    scrollTo(0, 0);
    if (document.activeElement === document.body || document.activeElement?.closest('.rail')) main.current?.focus({ preventScroll: true });
  }, [view?.id]);

  const showLogin = isLocked || pendingCode !== undefined;
  useEffect(() => {
    if (!showLogin) loadSession();
  }, [showLogin]);

  if (showLogin) return <Login />;
  const otherTheme = shownTheme === 'dark' ? 'Light' : 'Dark';
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to content</a>
      <header class="rail">
        <Brand />
        <nav aria-label="Views"><ul>{VIEWS.map((one) => <NavItem key={one.id} view={one} current={one.id === view?.id} />)}</ul></nav>
        <div class="foot">
          <button type="button" class="railbutton" onClick={switchTheme} title={`${otherTheme} (t)`}><Icon path={shownTheme === 'dark' ? SUN : MOON} /><span>{otherTheme}</span></button>
          <button type="button" class="railbutton" onClick={() => setHelp(true)} title="Keyboard shortcuts (?)"><Icon path={KEYBOARD} /><span>Shortcuts</span></button>
          {currentSession?.by === 'cookie' && <button type="button" class="railbutton" onClick={() => void logOut().catch(() => showToast('Logging out failed; delete the cookie of this page in the browser'))} title="Log out"><Icon path={OUT} /><span>Log out</span></button>}
          {currentSession && <p class="version">icecore {currentSession.version}{currentSession.right === 'read' && ', read only'}</p>}
        </div>
        <button type="button" class="railbutton more" aria-haspopup="dialog" onClick={() => setMenu(true)}><Icon path={MENU} /><span>More</span></button>
      </header>
      <main id="main" ref={main} tabIndex={-1} class={view?.whole ? 'whole' : ''}>
        {!isReached && <div class="away" role="alert">The server does not answer. The data shown may be out of date. Start it again with <code>icecore serve</code>.</div>}
        {view ? <view.Page key={view.id} route={route} /> : <><h1 class="unseen">Not found</h1><EmptyState title="There is nothing at this address."><p><a href="#/">Go to Home</a></p></EmptyState></>}
      </main>
      <Toast />
      <ShortcutsDialog open={help} onClose={() => setHelp(false)} />
      <Dialog title="icecore" open={menu} onClose={() => setMenu(false)}>
        <nav class="menu" aria-label="All views"><ul>{VIEWS.map((one) => <NavItem key={one.id} view={one} current={one.id === view?.id} onClick={() => setMenu(false)} />)}</ul></nav>
        <p><Button onClick={switchTheme}>{otherTheme}</Button> <Button onClick={() => { setMenu(false); setHelp(true); }}>Shortcuts</Button> {currentSession?.by === 'cookie' && <Button onClick={() => { setMenu(false); void logOut().catch(() => showToast('Logging out failed; delete the cookie of this page in the browser')); }}>Log out</Button>}</p>
      </Dialog>
    </div>
  );
}
