// Runs: usage of the summarizer and its cost, drafts to review, the logs, and what is due.
import type { JSX } from 'preact';
import { useGet } from '../../lib/api.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useLive } from '../../lib/live.ts';
import { go } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Shown, Tabs } from '../../ui/parts.tsx';
import type { View } from '../view.ts';
import { Figures, range } from './figures.tsx';
import { Due, JobsAndNights, Made } from './log.tsx';
import { Reviews } from './review.tsx';
import './runs.css';

const FACES = ['figures', 'review', 'log', 'due'] as const;
type Face = (typeof FACES)[number];

function Page({ route }: { route: Route }): JSX.Element {
  const chosen = route.query.get('review') ?? undefined;
  const face: Face = chosen !== undefined ? 'review' : FACES.find((one) => one === route.rest[0]) ?? 'figures';
  const reviews = useGet('/api/reviews', {});
  useTitle('Runs');
  useLive(['reviews', 'summaries', 'runs'], reviews.again);
  const waiting = reviews.value?.reviews.length ?? 0;
  return (
    <>
      <div class="viewhead"><h1>Runs</h1><p class="dim">How summaries are written: their size and cost, drafts to review, and what is due.</p></div>
      <Tabs label="Parts of this view" current={face} onChange={(one) => go(one === 'figures' ? ['runs'] : ['runs', one])}
        tabs={[['figures', 'Usage'], ['review', waiting === 0 ? 'Review' : `Review (${waiting})`], ['log', 'Log'], ['due', 'Due']]}>
        {face === 'figures' && <Figures shown={range(route.query.get('range'))} onRange={(one) => go(['runs'], { range: one }, true)} />}
        {face === 'review' && <Shown of={reviews}>{(value) => <Reviews reviews={value.reviews} chosen={chosen} onSettled={reviews.again} />}</Shown>}
        {face === 'log' && <div class="runspage"><Made chosen={route.query.get('run') ?? undefined} /><JobsAndNights night={route.query.get('night') ?? undefined} /></div>}
        {face === 'due' && <Due />}
      </Tabs>
    </>
  );
}

export const runs: View = {
  id: 'runs',
  title: 'Runs',
  key: 'r',
  icon: 'M4 20V4M4 20h16M8 16v-4M12 16V7M16 16v-6M20 16v-2',
  Page,
};
