// Home: today at a glance.
import type { JSX } from 'preact';
import { useGet } from '../../lib/api.ts';
import { longDay, many, number } from '../../lib/format.ts';
import { useTitle } from '../../lib/hooks.ts';
import { Section, Shown } from '../../ui/parts.tsx';
import type { View } from '../view.ts';

function Page(): JSX.Element {
  useTitle('Home');
  const status = useGet('/api/status', {});
  return (
    <>
      <div class="viewhead"><h1>{status.value ? longDay(status.value.now) : 'Home'}</h1></div>
      <Shown of={status}>
        {(value) => (
          <div class="cards">
            <Section title="Ledger">
              <p>{many(value.statements, 'statement')}, {number(value.p0)} for good, {number(value.open)} open</p>
            </Section>
          </div>
        )}
      </Shown>
    </>
  );
}

export const home: View = { id: 'home', title: 'Home', key: 'h', icon: 'M4 11.500 12 4.500l8 7M6.500 9.500V19.500h11V9.500M10 19.500v-5.500h4v5.500', Page };
